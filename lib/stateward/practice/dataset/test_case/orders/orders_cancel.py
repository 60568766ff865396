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


def test_cancel_chair_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: Please cancel order ORD-1144.
    user_context: |
      You are Grace Evans. You are polite and do not talk much.
      - customer id: C-162
      - order id: ORD-1144
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-162, name: Grace Evans, address: 80 Elm Street}
        - {id: C-171, name: Rosa Weber, address: 73 Park Avenue}
        orders:
        - {id: ORD-1061, customer_id: C-162, item: blender, quantity: 2, price: 185,
           status: processing, address: 80 Elm Street}
        - {id: ORD-1077, customer_id: C-171, item: candle, quantity: 1, price: 445,
           status: shipped, address: 73 Park Avenue}
        - {id: ORD-1144, customer_id: C-162, item: chair, quantity: 4, price: 40,
           status: processing, address: 80 Elm Street}
        - {id: ORD-1159, customer_id: C-171, item: jacket, quantity: 3, price: 50,
           status: shipped, address: 73 Park Avenue}
    """
    expect(x, orders={"ORD-1144": {"status": "cancelled"}})


def test_cancel_rug_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: I want to cancel order ORD-1110.
    user_context: |
      You are Rosa Reed. You have little time and give short answers.
      - customer id: C-129
      - order id: ORD-1110
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-129, name: Rosa Reed, address: 58 Station Road}
        - {id: C-136, name: Hugo Dunn, address: 88 Station Road}
        orders:
        - {id: ORD-1006, customer_id: C-136, item: keyboard, quantity: 1, price: 495,
           status: shipped, address: 88 Station Road}
        - {id: ORD-1064, customer_id: C-129, item: printer, quantity: 1, price: 175,
           status: cancelled, address: 58 Station Road}
        - {id: ORD-1110, customer_id: C-129, item: rug, quantity: 1, price: 85,
           status: processing, address: 58 Station Road}
        - {id: ORD-1149, customer_id: C-136, item: fan, quantity: 3, price: 75,
           status: processing, address: 88 Station Road}
    """
    expect(x, orders={"ORD-1110": {"status": "cancelled"}})


def test_cancel_kettle_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: Can you cancel my kettle, order ORD-1140?
    user_context: |
      You are Mia Lopez. You are friendly and answer what you are asked.
      - customer id: C-115
      - order id: ORD-1140
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-111, name: Leo Klein, address: 81 Park Avenue}
        - {id: C-115, name: Mia Lopez, address: 18 River Road}
        orders:
        - {id: ORD-1101, customer_id: C-111, item: grill, quantity: 1, price: 130,
           status: delivered, address: 81 Park Avenue}
        - {id: ORD-1113, customer_id: C-115, item: bookcase, quantity: 3, price: 130,
           status: processing, address: 18 River Road}
        - {id: ORD-1140, customer_id: C-115, item: kettle, quantity: 1, price: 305,
           status: processing, address: 18 River Road}
        - {id: ORD-1166, customer_id: C-111, item: heater, quantity: 3, price: 15,
           status: cancelled, address: 81 Park Avenue}
    """
    expect(x, orders={"ORD-1140": {"status": "cancelled"}})


def test_keep_stroller_after_a_no(x: TestContext, judge: Judge):
    """!
    query: I no longer need the stroller. Please cancel ORD-1134.
    user_context: |
      You are Paul Adams. Asked to confirm, you change your mind and keep the order.
      - customer id: C-155
      - order id: ORD-1134
      - confirm: no
    tags: ["kind:declined"]
    init:
      orders:
        customers:
        - {id: C-111, name: David Klein, address: 80 River Road}
        - {id: C-155, name: Paul Adams, address: 11 Forest Road}
        orders:
        - {id: ORD-1008, customer_id: C-155, item: bench, quantity: 1, price: 225,
           status: shipped, address: 11 Forest Road}
        - {id: ORD-1055, customer_id: C-111, item: clock, quantity: 1, price: 125,
           status: cancelled, address: 80 River Road}
        - {id: ORD-1134, customer_id: C-155, item: stroller, quantity: 4, price: 40,
           status: processing, address: 11 Forest Road}
        - {id: ORD-1168, customer_id: C-111, item: blanket, quantity: 1, price: 25,
           status: processing, address: 80 River Road}
    """
    # The customer says no, so nothing may change.
    expect(x, orders={"ORD-1134": {"status": "processing"}})


def test_keep_helmet_after_a_no(x: TestContext, judge: Judge):
    """!
    query: Cancel order ORD-1125, please.
    user_context: |
      You are Grace Moore. Asked to confirm, you change your mind and keep the order.
      - customer id: C-184
      - order id: ORD-1125
      - confirm: no
    tags: ["kind:declined"]
    init:
      orders:
        customers:
        - {id: C-160, name: Leo Adams, address: 29 Ash Road}
        - {id: C-184, name: Grace Moore, address: 34 Park Avenue}
        orders:
        - {id: ORD-1054, customer_id: C-184, item: tent, quantity: 2, price: 155,
           status: processing, address: 34 Park Avenue}
        - {id: ORD-1072, customer_id: C-160, item: radio, quantity: 1, price: 480,
           status: cancelled, address: 29 Ash Road}
        - {id: ORD-1090, customer_id: C-160, item: camera, quantity: 1, price: 155,
           status: cancelled, address: 29 Ash Road}
        - {id: ORD-1125, customer_id: C-184, item: helmet, quantity: 1, price: 435,
           status: processing, address: 34 Park Avenue}
    """
    # The customer says no, so nothing may change.
    expect(x, orders={"ORD-1125": {"status": "processing"}})


def test_no_cancellation_of_shipped_mattress(x: TestContext, judge: Judge):
    """!
    query: I changed my mind about the mattress. Please cancel order ORD-1030.
    user_context: |
      You are Tara Adams. You are brief and answer only what you are asked.
      - customer id: C-187
      - order id: ORD-1030
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-111, name: Kira Moore, address: 15 Field Lane}
        - {id: C-187, name: Tara Adams, address: 79 Bay Street}
        orders:
        - {id: ORD-1030, customer_id: C-187, item: mattress, quantity: 1, price: 235,
           status: shipped, address: 79 Bay Street}
        - {id: ORD-1079, customer_id: C-111, item: monitor, quantity: 2, price: 80,
           status: shipped, address: 15 Field Lane}
        - {id: ORD-1130, customer_id: C-187, item: drill, quantity: 1, price: 440,
           status: delivered, address: 79 Bay Street}
        - {id: ORD-1145, customer_id: C-111, item: ladder, quantity: 1, price: 140,
           status: processing, address: 15 Field Lane}
    """
    # Only a processing order can be cancelled.
    expect(x, orders={"ORD-1030": {"status": "shipped"}})


def test_no_cancellation_of_delivered_pillow(x: TestContext, judge: Judge):
    """!
    query: Order ORD-1155 was a mistake. Please cancel it.
    user_context: |
      You are Rosa Evans. You are polite and do not talk much.
      - customer id: C-103
      - order id: ORD-1155
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-103, name: Rosa Evans, address: 90 King Street}
        - {id: C-128, name: Jonas Park, address: 62 Grove Lane}
        orders:
        - {id: ORD-1021, customer_id: C-128, item: hammock, quantity: 4, price: 110,
           status: cancelled, address: 62 Grove Lane}
        - {id: ORD-1155, customer_id: C-103, item: pillow, quantity: 1, price: 475,
           status: delivered, address: 90 King Street}
        - {id: ORD-1162, customer_id: C-128, item: backpack, quantity: 3, price: 105,
           status: shipped, address: 62 Grove Lane}
        - {id: ORD-1195, customer_id: C-103, item: lamp, quantity: 2, price: 230,
           status: cancelled, address: 90 King Street}
    """
    # Only a processing order can be cancelled.
    expect(x, orders={"ORD-1155": {"status": "delivered"}})


def test_cancel_desk_found_by_customer(x: TestContext, judge: Judge):
    """!
    query: I am customer C-170. Please cancel my desk.
    user_context: |
      You are Jonas Dunn. You have little time and give short answers.
      - customer id: C-170
      - item: desk
      - confirm: yes
    tags: ["kind:lookup"]
    init:
      orders:
        customers:
        - {id: C-170, name: Jonas Dunn, address: 16 Lake Avenue}
        - {id: C-193, name: Tara Berg, address: 18 Grove Lane}
        orders:
        - {id: ORD-1020, customer_id: C-193, item: rug, quantity: 2, price: 10,
           status: delivered, address: 18 Grove Lane}
        - {id: ORD-1037, customer_id: C-170, item: mirror, quantity: 1, price: 195,
           status: delivered, address: 16 Lake Avenue}
        - {id: ORD-1044, customer_id: C-193, item: hammock, quantity: 4, price: 90,
           status: cancelled, address: 18 Grove Lane}
        - {id: ORD-1063, customer_id: C-170, item: desk, quantity: 4, price: 80,
           status: processing, address: 16 Lake Avenue}
    """
    expect(x, orders={"ORD-1063": {"status": "cancelled"}})
