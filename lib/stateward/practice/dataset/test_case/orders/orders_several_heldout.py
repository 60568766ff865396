"""Several changes at once, changes that are possible only in part, and plain questions."""

import re
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


def test_quantity_and_address_of_rug(x: TestContext, judge: Judge):
    """!
    query: Order ORD-1132 should be 5 pieces and go to 71 Cedar Avenue.
    user_context: |
      You are Carla Costa. You are brief and answer only what you are asked.
      - customer id: C-133
      - order id: ORD-1132
      - quantity: 5
      - address: 71 Cedar Avenue
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-133, name: Carla Costa, address: 53 King Street}
        - {id: C-137, name: Olga Jensen, address: 15 Grove Lane}
        orders:
        - {id: ORD-1054, customer_id: C-137, item: mattress, quantity: 4, price: 30,
           status: processing, address: 15 Grove Lane}
        - {id: ORD-1132, customer_id: C-133, item: rug, quantity: 4, price: 15,
           status: processing, address: 53 King Street}
        - {id: ORD-1154, customer_id: C-133, item: stroller, quantity: 2, price: 5,
           status: shipped, address: 53 King Street}
        - {id: ORD-1195, customer_id: C-137, item: printer, quantity: 1, price: 385,
           status: processing, address: 15 Grove Lane}
    """
    expect(x, orders={"ORD-1132": {"quantity": 5, "address": "71 Cedar Avenue"}})


def test_lamp_and_candle_to_a_new_address(x: TestContext, judge: Judge):
    """!
    query: I moved. Orders ORD-1002 and ORD-1118 should go to 5 Church Road.
    user_context: |
      You are David Ferrer. You are polite and do not talk much.
      - customer id: C-141
      - address: 5 Church Road
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-141, name: David Ferrer, address: 58 Maple Street}
        - {id: C-142, name: Grace Hayes, address: 3 Pine Street}
        orders:
        - {id: ORD-1002, customer_id: C-141, item: lamp, quantity: 1, price: 380,
           status: processing, address: 58 Maple Street}
        - {id: ORD-1014, customer_id: C-142, item: chair, quantity: 1, price: 305,
           status: delivered, address: 3 Pine Street}
        - {id: ORD-1017, customer_id: C-142, item: drill, quantity: 1, price: 305,
           status: cancelled, address: 3 Pine Street}
        - {id: ORD-1118, customer_id: C-141, item: candle, quantity: 1, price: 30,
           status: processing, address: 58 Maple Street}
    """
    expect(x, orders={"ORD-1002": {"address": "5 Church Road"}, "ORD-1118": {"address": "5 Church Road"}})


def test_cancel_desk_and_refund_jacket(x: TestContext, judge: Judge):
    """!
    query: I want to cancel order ORD-1048 and get my money back for order ORD-1019.
    user_context: |
      You are Tara Jensen. You have little time and give short answers.
      - customer id: C-126
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-101, name: Grace Olsen, address: 79 Elm Street}
        - {id: C-126, name: Tara Jensen, address: 71 Maple Street}
        orders:
        - {id: ORD-1019, customer_id: C-126, item: jacket, quantity: 2, price: 10,
           status: delivered, address: 71 Maple Street}
        - {id: ORD-1048, customer_id: C-126, item: desk, quantity: 3, price: 90,
           status: processing, address: 71 Maple Street}
        - {id: ORD-1072, customer_id: C-101, item: clock, quantity: 1, price: 220,
           status: cancelled, address: 79 Elm Street}
        - {id: ORD-1180, customer_id: C-101, item: pillow, quantity: 1, price: 345,
           status: delivered, address: 79 Elm Street}
    """
    expect(x, orders={"ORD-1048": {"status": "cancelled"}, "ORD-1019": {"refunded": 20}})


def test_cancel_drill_but_not_shipped_camera(x: TestContext, judge: Judge):
    """!
    query: I want to cancel orders ORD-1172 and ORD-1008.
    user_context: |
      You are Ines Quinn. You are friendly and answer what you are asked.
      - customer id: C-145
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-110, name: Ines Adams, address: 93 Field Lane}
        - {id: C-145, name: Ines Quinn, address: 8 Pine Street}
        orders:
        - {id: ORD-1008, customer_id: C-145, item: drill, quantity: 2, price: 75,
           status: processing, address: 8 Pine Street}
        - {id: ORD-1047, customer_id: C-110, item: mattress, quantity: 2, price: 150,
           status: cancelled, address: 93 Field Lane}
        - {id: ORD-1128, customer_id: C-110, item: bookcase, quantity: 2, price: 110,
           status: delivered, address: 93 Field Lane}
        - {id: ORD-1172, customer_id: C-145, item: camera, quantity: 2, price: 145,
           status: shipped, address: 8 Pine Street}
    """
    expect(x, orders={"ORD-1008": {"status": "cancelled"}, "ORD-1172": {"status": "shipped"}})


def test_tell_amount_of_desk(x: TestContext, judge: Judge):
    """!
    query: How much did I pay for order ORD-1003?
    user_context: |
      You are Olga Adams. You like things to be done at once.
      - customer id: C-191
      - order id: ORD-1003
      - confirm: yes
    tags: ["kind:question"]
    init:
      orders:
        customers:
        - {id: C-109, name: Ben Olsen, address: 59 Elm Street}
        - {id: C-191, name: Olga Adams, address: 13 Lake Avenue}
        orders:
        - {id: ORD-1003, customer_id: C-191, item: desk, quantity: 4, price: 5,
           status: delivered, address: 13 Lake Avenue}
        - {id: ORD-1037, customer_id: C-109, item: candle, quantity: 1, price: 440,
           status: shipped, address: 59 Elm Street}
        - {id: ORD-1167, customer_id: C-109, item: hammock, quantity: 2, price: 65,
           status: processing, address: 59 Elm Street}
        - {id: ORD-1192, customer_id: C-191, item: rug, quantity: 2, price: 140,
           status: shipped, address: 13 Lake Avenue}
    """
    expect(x, orders={"ORD-1003": {"status": "delivered"}})
    assert re.search(r"\b20\b", x.response), x.response
