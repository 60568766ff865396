"""Cancelling orders: confirmation, the customer's no, and orders that cannot be cancelled any more."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext

"""!
scenario: orders
"""


def expect(x: TestContext, **edits):
    """The final state is the initial one with these edits, {id: {column: value}} for each table, and no other."""
    expected = deepcopy(x.init_result["orders"]["initial"])
    for table, rows in edits.items():
        for key, row in rows.items():
            expected[table][key].update(row)
    final = x.effects["orders"]
    for table, rows in expected.items():
        for key, row in rows.items():
            found = final[table].get(key)
            assert found == row, f"{key}: expected {row}, found {found}"
    assert final == expected


def test_cancel_bookcase_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: Could you cancel ORD-1029 for me?
    user_context: |
      You are Kira Reed. You are friendly and answer what you are asked.
      - customer id: C-131
      - order id: ORD-1029
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-131, name: Kira Reed, address: 88 Mill Lane}
        - {id: C-163, name: Rosa Klein, address: 14 Elm Street}
        orders:
        - {id: ORD-1029, customer_id: C-131, item: bookcase, quantity: 4, price: 60,
           status: processing, address: 88 Mill Lane}
        - {id: ORD-1087, customer_id: C-163, item: fan, quantity: 1, price: 275,
           status: cancelled, address: 14 Elm Street}
        - {id: ORD-1094, customer_id: C-131, item: drill, quantity: 4, price: 35,
           status: shipped, address: 88 Mill Lane}
        - {id: ORD-1168, customer_id: C-163, item: kettle, quantity: 3, price: 95,
           status: shipped, address: 14 Elm Street}
    """
    expect(x, orders={"ORD-1029": {"status": "cancelled"}})


def test_cancel_pillow_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: Please cancel order ORD-1075.
    user_context: |
      You are Hugo Evans. You like things to be done at once.
      - customer id: C-169
      - order id: ORD-1075
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-169, name: Hugo Evans, address: 40 Grove Lane}
        - {id: C-181, name: David Novak, address: 43 Maple Street}
        orders:
        - {id: ORD-1042, customer_id: C-169, item: ladder, quantity: 1, price: 35,
           status: delivered, address: 40 Grove Lane}
        - {id: ORD-1045, customer_id: C-181, item: keyboard, quantity: 1, price: 260,
           status: delivered, address: 43 Maple Street}
        - {id: ORD-1049, customer_id: C-181, item: rug, quantity: 1, price: 455,
           status: shipped, address: 43 Maple Street}
        - {id: ORD-1075, customer_id: C-169, item: pillow, quantity: 1, price: 430,
           status: processing, address: 40 Grove Lane}
    """
    expect(x, orders={"ORD-1075": {"status": "cancelled"}})


def test_cancel_backpack_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: I want to cancel order ORD-1034.
    user_context: |
      You are Tara Olsen. You are calm and trust the shop.
      - customer id: C-154
      - order id: ORD-1034
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-136, name: Victor Quinn, address: 92 Hill Road}
        - {id: C-154, name: Tara Olsen, address: 63 River Road}
        orders:
        - {id: ORD-1034, customer_id: C-154, item: backpack, quantity: 1, price: 260,
           status: processing, address: 63 River Road}
        - {id: ORD-1102, customer_id: C-136, item: monitor, quantity: 1, price: 445,
           status: cancelled, address: 92 Hill Road}
        - {id: ORD-1112, customer_id: C-136, item: blender, quantity: 1, price: 265,
           status: delivered, address: 92 Hill Road}
        - {id: ORD-1191, customer_id: C-154, item: tent, quantity: 2, price: 150,
           status: processing, address: 63 River Road}
    """
    expect(x, orders={"ORD-1034": {"status": "cancelled"}})


def test_keep_radio_after_a_no(x: TestContext, judge: Judge):
    """!
    query: Can you cancel my radio, order ORD-1176?
    user_context: |
      You are Rosa Adams. Asked to confirm, you change your mind and keep the order.
      - customer id: C-157
      - order id: ORD-1176
      - confirm: no
    tags: ["kind:declined"]
    init:
      orders:
        customers:
        - {id: C-120, name: Hugo Ferrer, address: 40 King Street}
        - {id: C-157, name: Rosa Adams, address: 50 Maple Street}
        orders:
        - {id: ORD-1087, customer_id: C-157, item: desk, quantity: 1, price: 350,
           status: delivered, address: 50 Maple Street}
        - {id: ORD-1151, customer_id: C-120, item: stroller, quantity: 1, price: 320,
           status: cancelled, address: 40 King Street}
        - {id: ORD-1169, customer_id: C-120, item: grill, quantity: 1, price: 15,
           status: cancelled, address: 40 King Street}
        - {id: ORD-1176, customer_id: C-157, item: radio, quantity: 3, price: 55,
           status: processing, address: 50 Maple Street}
    """
    # The customer says no, so nothing may change.
    expect(x, orders={"ORD-1176": {"status": "processing"}})


def test_keep_chair_after_a_no(x: TestContext, judge: Judge):
    """!
    query: I no longer need the chair. Please cancel ORD-1159.
    user_context: |
      You are Hugo Moore. Asked to confirm, you change your mind and keep the order.
      - customer id: C-189
      - order id: ORD-1159
      - confirm: no
    tags: ["kind:declined"]
    init:
      orders:
        customers:
        - {id: C-189, name: Hugo Moore, address: 93 Cedar Avenue}
        - {id: C-198, name: Jonas Novak, address: 62 Lake Avenue}
        orders:
        - {id: ORD-1018, customer_id: C-198, item: clock, quantity: 3, price: 15,
           status: processing, address: 62 Lake Avenue}
        - {id: ORD-1117, customer_id: C-198, item: helmet, quantity: 2, price: 95,
           status: delivered, address: 62 Lake Avenue}
        - {id: ORD-1159, customer_id: C-189, item: chair, quantity: 2, price: 160,
           status: processing, address: 93 Cedar Avenue}
        - {id: ORD-1173, customer_id: C-189, item: camera, quantity: 3, price: 55,
           status: cancelled, address: 93 Cedar Avenue}
    """
    # The customer says no, so nothing may change.
    expect(x, orders={"ORD-1159": {"status": "processing"}})


def test_no_cancellation_of_shipped_mirror(x: TestContext, judge: Judge):
    """!
    query: Cancel order ORD-1113, please.
    user_context: |
      You are Grace Grant. You have little time and give short answers.
      - customer id: C-137
      - order id: ORD-1113
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-137, name: Grace Grant, address: 88 Forest Road}
        - {id: C-194, name: Noah Klein, address: 32 Church Road}
        orders:
        - {id: ORD-1022, customer_id: C-137, item: heater, quantity: 1, price: 125,
           status: delivered, address: 88 Forest Road}
        - {id: ORD-1097, customer_id: C-194, item: printer, quantity: 3, price: 55,
           status: shipped, address: 32 Church Road}
        - {id: ORD-1113, customer_id: C-137, item: mirror, quantity: 3, price: 55,
           status: shipped, address: 88 Forest Road}
        - {id: ORD-1198, customer_id: C-194, item: candle, quantity: 1, price: 335,
           status: delivered, address: 32 Church Road}
    """
    # Only a processing order can be cancelled.
    expect(x, orders={"ORD-1113": {"status": "shipped"}})


def test_no_cancellation_of_delivered_blanket(x: TestContext, judge: Judge):
    """!
    query: I changed my mind about the blanket. Please cancel order ORD-1171.
    user_context: |
      You are Rosa Dunn. You are friendly and answer what you are asked.
      - customer id: C-166
      - order id: ORD-1171
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-100, name: Leo Hayes, address: 79 Grove Lane}
        - {id: C-166, name: Rosa Dunn, address: 64 King Street}
        orders:
        - {id: ORD-1017, customer_id: C-100, item: lamp, quantity: 1, price: 490,
           status: cancelled, address: 79 Grove Lane}
        - {id: ORD-1090, customer_id: C-166, item: bench, quantity: 3, price: 145,
           status: cancelled, address: 64 King Street}
        - {id: ORD-1171, customer_id: C-166, item: blanket, quantity: 1, price: 425,
           status: delivered, address: 64 King Street}
        - {id: ORD-1183, customer_id: C-100, item: jacket, quantity: 1, price: 185,
           status: shipped, address: 79 Grove Lane}
    """
    # Only a processing order can be cancelled.
    expect(x, orders={"ORD-1171": {"status": "delivered"}})


def test_cancel_candle_found_by_customer(x: TestContext, judge: Judge):
    """!
    query: My customer id is C-133. I want to cancel the candle.
    user_context: |
      You are Ines Costa. You like things to be done at once.
      - customer id: C-133
      - item: candle
      - confirm: yes
    tags: ["kind:lookup"]
    init:
      orders:
        customers:
        - {id: C-118, name: Tara Novak, address: 90 Hill Road}
        - {id: C-133, name: Ines Costa, address: 74 Park Avenue}
        orders:
        - {id: ORD-1006, customer_id: C-118, item: lamp, quantity: 3, price: 140,
           status: delivered, address: 90 Hill Road}
        - {id: ORD-1069, customer_id: C-118, item: rug, quantity: 1, price: 130,
           status: shipped, address: 90 Hill Road}
        - {id: ORD-1078, customer_id: C-133, item: helmet, quantity: 2, price: 155,
           status: processing, address: 74 Park Avenue}
        - {id: ORD-1131, customer_id: C-133, item: candle, quantity: 2, price: 55,
           status: processing, address: 74 Park Avenue}
    """
    expect(x, orders={"ORD-1131": {"status": "cancelled"}})
