"""Refunds: small ones, large ones with the manager's approval, and those that the rules forbid."""

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


def test_refund_small_clock(x: TestContext, judge: Judge):
    """!
    query: Please refund order ORD-1146.
    user_context: |
      You are Noah Olsen. You are friendly and answer what you are asked.
      - customer id: C-134
      - order id: ORD-1146
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-134, name: Noah Olsen, address: 75 Garden Street}
        - {id: C-164, name: Leo Costa, address: 25 Birch Lane}
        orders:
        - {id: ORD-1008, customer_id: C-164, item: backpack, quantity: 1, price: 275,
           status: processing, address: 25 Birch Lane}
        - {id: ORD-1065, customer_id: C-134, item: radio, quantity: 1, price: 105,
           status: delivered, address: 75 Garden Street}
        - {id: ORD-1113, customer_id: C-164, item: mirror, quantity: 4, price: 85,
           status: shipped, address: 25 Birch Lane}
        - {id: ORD-1146, customer_id: C-134, item: clock, quantity: 1, price: 95,
           status: delivered, address: 75 Garden Street}
    """
    expect(x, orders={"ORD-1146": {"refunded": 95}})


def test_refund_small_stroller(x: TestContext, judge: Judge):
    """!
    query: I want my money back for order ORD-1059.
    user_context: |
      You are Paul Moore. You like things to be done at once.
      - customer id: C-179
      - order id: ORD-1059
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-119, name: David Park, address: 59 Maple Street}
        - {id: C-179, name: Paul Moore, address: 99 Field Lane}
        orders:
        - {id: ORD-1039, customer_id: C-179, item: desk, quantity: 1, price: 290,
           status: cancelled, address: 99 Field Lane}
        - {id: ORD-1059, customer_id: C-179, item: stroller, quantity: 2, price: 35,
           status: delivered, address: 99 Field Lane}
        - {id: ORD-1068, customer_id: C-119, item: chair, quantity: 1, price: 35,
           status: shipped, address: 59 Maple Street}
        - {id: ORD-1166, customer_id: C-119, item: grill, quantity: 1, price: 155,
           status: shipped, address: 59 Maple Street}
    """
    expect(x, orders={"ORD-1059": {"refunded": 70}})


def test_refund_small_ladder(x: TestContext, judge: Judge):
    """!
    query: Can I get a full refund for the ladder, order ORD-1045?
    user_context: |
      You are Kira Hayes. You are calm and trust the shop.
      - customer id: C-114
      - order id: ORD-1045
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-114, name: Kira Hayes, address: 73 Bay Street}
        - {id: C-136, name: Grace Klein, address: 75 Garden Street}
        orders:
        - {id: ORD-1045, customer_id: C-114, item: ladder, quantity: 1, price: 15,
           status: delivered, address: 73 Bay Street}
        - {id: ORD-1058, customer_id: C-114, item: candle, quantity: 1, price: 395,
           status: cancelled, address: 73 Bay Street}
        - {id: ORD-1084, customer_id: C-136, item: helmet, quantity: 1, price: 290,
           status: delivered, address: 75 Garden Street}
        - {id: ORD-1198, customer_id: C-136, item: drill, quantity: 3, price: 10,
           status: shipped, address: 75 Garden Street}
    """
    expect(x, orders={"ORD-1045": {"refunded": 15}})


def test_refund_part_of_bookcase(x: TestContext, judge: Judge):
    """!
    query: Please refund 60 dollars of order ORD-1087.
    user_context: |
      You are Tara Dunn. You are brief and answer only what you are asked.
      - customer id: C-154
      - order id: ORD-1087
      - amount: 60
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-154, name: Tara Dunn, address: 47 Park Avenue}
        - {id: C-178, name: Ben Evans, address: 15 Maple Street}
        orders:
        - {id: ORD-1048, customer_id: C-178, item: pillow, quantity: 3, price: 110,
           status: delivered, address: 15 Maple Street}
        - {id: ORD-1072, customer_id: C-154, item: lamp, quantity: 1, price: 305,
           status: processing, address: 47 Park Avenue}
        - {id: ORD-1087, customer_id: C-154, item: bookcase, quantity: 1, price: 205,
           status: delivered, address: 47 Park Avenue}
        - {id: ORD-1145, customer_id: C-178, item: keyboard, quantity: 1, price: 160,
           status: delivered, address: 15 Maple Street}
    """
    expect(x, orders={"ORD-1087": {"refunded": 60}})


def test_refund_large_printer_approved(x: TestContext, judge: Judge):
    """!
    query: The printer is not for me. Please refund ORD-1032.
    user_context: |
      You are Mia Adams. You are polite and do not talk much.
      - customer id: C-133
      - order id: ORD-1032
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-133, name: Mia Adams, address: 10 Ash Road}
        - {id: C-177, name: Ines Grant, address: 55 Station Road}
        orders:
        - {id: ORD-1032, customer_id: C-133, item: printer, quantity: 1, price: 335,
           status: delivered, address: 10 Ash Road, manager: approved}
        - {id: ORD-1036, customer_id: C-177, item: tent, quantity: 1, price: 445,
           status: shipped, address: 55 Station Road}
        - {id: ORD-1097, customer_id: C-133, item: camera, quantity: 1, price: 20,
           status: shipped, address: 10 Ash Road}
        - {id: ORD-1191, customer_id: C-177, item: blender, quantity: 4, price: 115,
           status: delivered, address: 55 Station Road}
    """
    expect(x, orders={"ORD-1032": {"approval": "approved", "refunded": 335}})


def test_refund_large_kettle_approved(x: TestContext, judge: Judge):
    """!
    query: I sent the kettle back. Please refund order ORD-1186.
    user_context: |
      You are Noah Park. You have little time and give short answers.
      - customer id: C-172
      - order id: ORD-1186
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-168, name: Hugo Reed, address: 65 Bay Street}
        - {id: C-172, name: Noah Park, address: 7 Station Road}
        orders:
        - {id: ORD-1011, customer_id: C-172, item: mattress, quantity: 1, price: 455,
           status: processing, address: 7 Station Road}
        - {id: ORD-1019, customer_id: C-168, item: jacket, quantity: 2, price: 145,
           status: processing, address: 65 Bay Street}
        - {id: ORD-1031, customer_id: C-168, item: blanket, quantity: 3, price: 125,
           status: delivered, address: 65 Bay Street}
        - {id: ORD-1186, customer_id: C-172, item: kettle, quantity: 2, price: 235,
           status: delivered, address: 7 Station Road, manager: approved}
    """
    expect(x, orders={"ORD-1186": {"approval": "approved", "refunded": 470}})


def test_no_refund_of_monitor_denied(x: TestContext, judge: Judge):
    """!
    query: Refund order ORD-1072, please.
    user_context: |
      You are Carla Olsen. You are friendly and answer what you are asked.
      - customer id: C-130
      - order id: ORD-1072
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-130, name: Carla Olsen, address: 19 Maple Street}
        - {id: C-177, name: Felix Grant, address: 95 Station Road}
        orders:
        - {id: ORD-1000, customer_id: C-130, item: heater, quantity: 2, price: 45,
           status: processing, address: 19 Maple Street}
        - {id: ORD-1014, customer_id: C-177, item: fan, quantity: 1, price: 320,
           status: cancelled, address: 95 Station Road}
        - {id: ORD-1040, customer_id: C-177, item: bench, quantity: 1, price: 445,
           status: processing, address: 95 Station Road}
        - {id: ORD-1072, customer_id: C-130, item: monitor, quantity: 2, price: 120,
           status: delivered, address: 19 Maple Street, manager: denied}
    """
    # The manager was asked and said no.
    expect(x, orders={"ORD-1072": {"approval": "denied"}})


def test_no_refund_of_shipped_blender(x: TestContext, judge: Judge):
    """!
    query: I would like a refund of the whole amount of order ORD-1006.
    user_context: |
      You are Grace Reed. You like things to be done at once.
      - customer id: C-111
      - order id: ORD-1006
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-111, name: Grace Reed, address: 60 Birch Lane}
        - {id: C-154, name: Mia Park, address: 12 King Street}
        orders:
        - {id: ORD-1006, customer_id: C-111, item: blender, quantity: 1, price: 95,
           status: shipped, address: 60 Birch Lane}
        - {id: ORD-1147, customer_id: C-154, item: lamp, quantity: 4, price: 120,
           status: processing, address: 12 King Street}
        - {id: ORD-1183, customer_id: C-111, item: chair, quantity: 2, price: 75,
           status: shipped, address: 60 Birch Lane}
        - {id: ORD-1184, customer_id: C-154, item: radio, quantity: 1, price: 65,
           status: delivered, address: 12 King Street}
    """
    # Only a delivered order can be refunded.
    expect(x, orders={"ORD-1006": {"refunded": 0}})


def test_no_second_refund_of_fan(x: TestContext, judge: Judge):
    """!
    query: Could you refund ORD-1169 for me?
    user_context: |
      You are Ines Klein. You are calm and trust the shop.
      - customer id: C-146
      - order id: ORD-1169
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-146, name: Ines Klein, address: 28 Oak Lane}
        - {id: C-182, name: Ada Dunn, address: 59 Grove Lane}
        orders:
        - {id: ORD-1020, customer_id: C-182, item: rug, quantity: 2, price: 245,
           status: processing, address: 59 Grove Lane}
        - {id: ORD-1033, customer_id: C-146, item: kettle, quantity: 1, price: 170,
           status: processing, address: 28 Oak Lane}
        - {id: ORD-1123, customer_id: C-182, item: heater, quantity: 2, price: 145,
           status: shipped, address: 59 Grove Lane}
        - {id: ORD-1169, customer_id: C-146, item: fan, quantity: 2, price: 25,
           status: delivered, address: 28 Oak Lane, refunded: 50}
    """
    # It has a refund already.
    expect(x, orders={"ORD-1169": {"refunded": 50}})


def test_no_refund_beyond_price_of_pillow(x: TestContext, judge: Judge):
    """!
    query: I want 90 dollars back for order ORD-1151.
    user_context: |
      You are Ines Ferrer. You are brief and answer only what you are asked.
      - customer id: C-118
      - order id: ORD-1151
      - amount: 90
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-118, name: Ines Ferrer, address: 95 Bay Street}
        - {id: C-159, name: Olga Olsen, address: 52 Forest Road}
        orders:
        - {id: ORD-1012, customer_id: C-159, item: clock, quantity: 1, price: 305,
           status: delivered, address: 52 Forest Road}
        - {id: ORD-1013, customer_id: C-118, item: jacket, quantity: 1, price: 435,
           status: delivered, address: 95 Bay Street}
        - {id: ORD-1151, customer_id: C-118, item: pillow, quantity: 1, price: 45,
           status: delivered, address: 95 Bay Street}
        - {id: ORD-1197, customer_id: C-159, item: mattress, quantity: 1, price: 400,
           status: cancelled, address: 52 Forest Road}
    """
    # More than the order cost: nothing may change.
    expect(x, orders={"ORD-1151": {"refunded": 0}})
