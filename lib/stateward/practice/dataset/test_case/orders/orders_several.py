"""Several changes at once, changes that are possible only in part, and plain questions."""

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


def test_quantity_and_address_of_keyboard(x: TestContext, judge: Judge):
    """!
    query: Please change order ORD-1044 to 5 pieces and send it to 99 Garden Street.
    user_context: |
      You are David Lopez. You like things to be done at once.
      - customer id: C-141
      - order id: ORD-1044
      - quantity: 5
      - address: 99 Garden Street
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-108, name: Olga Costa, address: 53 King Street}
        - {id: C-141, name: David Lopez, address: 17 Hill Road}
        orders:
        - {id: ORD-1044, customer_id: C-141, item: keyboard, quantity: 2, price: 10,
           status: processing, address: 17 Hill Road}
        - {id: ORD-1049, customer_id: C-108, item: pillow, quantity: 1, price: 100,
           status: cancelled, address: 53 King Street}
        - {id: ORD-1151, customer_id: C-141, item: drill, quantity: 2, price: 145,
           status: shipped, address: 17 Hill Road}
        - {id: ORD-1160, customer_id: C-108, item: hammock, quantity: 1, price: 55,
           status: processing, address: 53 King Street}
    """
    expect(x, orders={"ORD-1044": {"quantity": 5, "address": "99 Garden Street"}})


def test_camera_and_jacket_to_a_new_address(x: TestContext, judge: Judge):
    """!
    query: Please send orders ORD-1024 and ORD-1058 to 70 Hill Road.
    user_context: |
      You are Olga Hayes. You are calm and trust the shop.
      - customer id: C-123
      - address: 70 Hill Road
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-123, name: Olga Hayes, address: 99 Pine Street}
        - {id: C-185, name: Elena Silva, address: 44 Grove Lane}
        orders:
        - {id: ORD-1009, customer_id: C-185, item: blanket, quantity: 1, price: 10,
           status: shipped, address: 44 Grove Lane}
        - {id: ORD-1024, customer_id: C-123, item: camera, quantity: 1, price: 110,
           status: processing, address: 99 Pine Street}
        - {id: ORD-1058, customer_id: C-123, item: jacket, quantity: 4, price: 50,
           status: processing, address: 99 Pine Street}
        - {id: ORD-1071, customer_id: C-185, item: grill, quantity: 1, price: 290,
           status: shipped, address: 44 Grove Lane}
    """
    expect(x, orders={"ORD-1024": {"address": "70 Hill Road"}, "ORD-1058": {"address": "70 Hill Road"}})


def test_cancel_rug_and_refund_desk(x: TestContext, judge: Judge):
    """!
    query: Please cancel order ORD-1189 and refund order ORD-1009.
    user_context: |
      You are Ada Quinn. You are brief and answer only what you are asked.
      - customer id: C-156
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-142, name: Victor Berg, address: 20 Elm Street}
        - {id: C-156, name: Ada Quinn, address: 83 Garden Street}
        orders:
        - {id: ORD-1009, customer_id: C-156, item: desk, quantity: 2, price: 45,
           status: delivered, address: 83 Garden Street}
        - {id: ORD-1086, customer_id: C-142, item: radio, quantity: 4, price: 55,
           status: shipped, address: 20 Elm Street}
        - {id: ORD-1106, customer_id: C-142, item: chair, quantity: 1, price: 35,
           status: processing, address: 20 Elm Street}
        - {id: ORD-1189, customer_id: C-156, item: rug, quantity: 1, price: 365,
           status: processing, address: 83 Garden Street}
    """
    expect(x, orders={"ORD-1189": {"status": "cancelled"}, "ORD-1009": {"refunded": 90}})


def test_cancel_pillow_but_not_shipped_stroller(x: TestContext, judge: Judge):
    """!
    query: Please cancel orders ORD-1038 and ORD-1106.
    user_context: |
      You are Paul Ferrer. You are polite and do not talk much.
      - customer id: C-151
      - confirm: yes
    tags: ["kind:several"]
    init:
      orders:
        customers:
        - {id: C-111, name: Elena Reed, address: 85 Ash Road}
        - {id: C-151, name: Paul Ferrer, address: 36 Forest Road}
        orders:
        - {id: ORD-1038, customer_id: C-151, item: stroller, quantity: 1, price: 245,
           status: shipped, address: 36 Forest Road}
        - {id: ORD-1079, customer_id: C-111, item: helmet, quantity: 1, price: 490,
           status: cancelled, address: 85 Ash Road}
        - {id: ORD-1106, customer_id: C-151, item: pillow, quantity: 1, price: 385,
           status: processing, address: 36 Forest Road}
        - {id: ORD-1123, customer_id: C-111, item: drill, quantity: 3, price: 120,
           status: processing, address: 85 Ash Road}
    """
    expect(x, orders={"ORD-1106": {"status": "cancelled"}, "ORD-1038": {"status": "shipped"}})


def test_tell_status_of_lamp(x: TestContext, judge: Judge):
    """!
    query: What is the status of order ORD-1066?
    user_context: |
      You are Paul Ito. You have little time and give short answers.
      - customer id: C-142
      - order id: ORD-1066
      - confirm: yes
    tags: ["kind:question"]
    init:
      orders:
        customers:
        - {id: C-142, name: Paul Ito, address: 47 Lake Avenue}
        - {id: C-197, name: Jonas Hayes, address: 96 Oak Lane}
        orders:
        - {id: ORD-1032, customer_id: C-197, item: camera, quantity: 1, price: 435,
           status: cancelled, address: 96 Oak Lane}
        - {id: ORD-1066, customer_id: C-142, item: lamp, quantity: 2, price: 205,
           status: delivered, address: 47 Lake Avenue}
        - {id: ORD-1127, customer_id: C-197, item: bookcase, quantity: 1, price: 405,
           status: shipped, address: 96 Oak Lane}
        - {id: ORD-1189, customer_id: C-142, item: kettle, quantity: 4, price: 20,
           status: processing, address: 47 Lake Avenue}
    """
    expect(x, orders={"ORD-1066": {"status": "delivered"}})
    assert "delivered" in x.response.lower(), x.response
