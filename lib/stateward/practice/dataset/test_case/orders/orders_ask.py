"""Information that only the customer has, and complaints."""

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


def test_ask_which_order_then_cancel_blender(x: TestContext, judge: Judge):
    """!
    query: I want to cancel an order.
    user_context: |
      You are Ines Reed. You are friendly and answer what you are asked.
      - customer id: C-130
      - order id: ORD-1173
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-130, name: Ines Reed, address: 79 Elm Street}
        - {id: C-185, name: Leo Moore, address: 91 Grove Lane}
        orders:
        - {id: ORD-1130, customer_id: C-185, item: bench, quantity: 2, price: 215,
           status: processing, address: 91 Grove Lane}
        - {id: ORD-1141, customer_id: C-185, item: jacket, quantity: 4, price: 90,
           status: processing, address: 91 Grove Lane}
        - {id: ORD-1173, customer_id: C-130, item: blender, quantity: 3, price: 55,
           status: processing, address: 79 Elm Street}
        - {id: ORD-1197, customer_id: C-130, item: mattress, quantity: 3, price: 85,
           status: shipped, address: 79 Elm Street}
    """
    expect(x, orders={"ORD-1173": {"status": "cancelled"}})


def test_ask_which_order_then_refund_fan(x: TestContext, judge: Judge):
    """!
    query: I want my money back for an order.
    user_context: |
      You are Paul Klein. You like things to be done at once.
      - customer id: C-148
      - order id: ORD-1161
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-148, name: Paul Klein, address: 95 Lake Avenue}
        - {id: C-187, name: Carla Novak, address: 14 Church Road}
        orders:
        - {id: ORD-1005, customer_id: C-187, item: rug, quantity: 3, price: 40,
           status: cancelled, address: 14 Church Road}
        - {id: ORD-1023, customer_id: C-187, item: blanket, quantity: 1, price: 55,
           status: cancelled, address: 14 Church Road}
        - {id: ORD-1108, customer_id: C-148, item: backpack, quantity: 1, price: 125,
           status: shipped, address: 95 Lake Avenue}
        - {id: ORD-1161, customer_id: C-148, item: fan, quantity: 1, price: 20,
           status: delivered, address: 95 Lake Avenue}
    """
    expect(x, orders={"ORD-1161": {"refunded": 20}})


def test_ask_new_address_of_hammock(x: TestContext, judge: Judge):
    """!
    query: Please change the address of order ORD-1078.
    user_context: |
      You are Carla Hayes. You are calm and trust the shop.
      - customer id: C-114
      - order id: ORD-1078
      - address: 30 Oak Lane
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-103, name: Victor Costa, address: 15 Cedar Avenue}
        - {id: C-114, name: Carla Hayes, address: 24 King Street}
        orders:
        - {id: ORD-1019, customer_id: C-114, item: heater, quantity: 1, price: 65,
           status: processing, address: 24 King Street}
        - {id: ORD-1078, customer_id: C-114, item: hammock, quantity: 1, price: 375,
           status: processing, address: 24 King Street}
        - {id: ORD-1144, customer_id: C-103, item: ladder, quantity: 1, price: 245,
           status: delivered, address: 15 Cedar Avenue}
        - {id: ORD-1170, customer_id: C-103, item: keyboard, quantity: 1, price: 185,
           status: delivered, address: 15 Cedar Avenue}
    """
    expect(x, orders={"ORD-1078": {"address": "30 Oak Lane"}})


def test_ask_new_quantity_of_radio(x: TestContext, judge: Judge):
    """!
    query: Please change the quantity of order ORD-1128.
    user_context: |
      You are Noah Ferrer. You are brief and answer only what you are asked.
      - customer id: C-123
      - order id: ORD-1128
      - quantity: 5
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-113, name: Carla Moore, address: 76 River Road}
        - {id: C-123, name: Noah Ferrer, address: 54 Pine Street}
        orders:
        - {id: ORD-1003, customer_id: C-113, item: clock, quantity: 4, price: 95,
           status: delivered, address: 76 River Road}
        - {id: ORD-1031, customer_id: C-113, item: tent, quantity: 1, price: 140,
           status: delivered, address: 76 River Road}
        - {id: ORD-1122, customer_id: C-123, item: candle, quantity: 1, price: 305,
           status: cancelled, address: 54 Pine Street}
        - {id: ORD-1128, customer_id: C-123, item: radio, quantity: 1, price: 60,
           status: processing, address: 54 Pine Street}
    """
    expect(x, orders={"ORD-1128": {"quantity": 5}})


def test_complaint_late_desk(x: TestContext, judge: Judge):
    """!
    query: Order ORD-1064 is late. I want to complain.
    user_context: |
      You are Grace Jensen. You are polite and do not talk much.
      - customer id: C-141
      - order id: ORD-1064
      - reason: late
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      orders:
        customers:
        - {id: C-135, name: Tara Evans, address: 77 Grove Lane}
        - {id: C-141, name: Grace Jensen, address: 46 Birch Lane}
        orders:
        - {id: ORD-1064, customer_id: C-141, item: desk, quantity: 4, price: 10,
           status: shipped, address: 46 Birch Lane}
        - {id: ORD-1124, customer_id: C-135, item: mirror, quantity: 1, price: 225,
           status: delivered, address: 77 Grove Lane}
        - {id: ORD-1155, customer_id: C-135, item: monitor, quantity: 1, price: 205,
           status: delivered, address: 77 Grove Lane}
        - {id: ORD-1169, customer_id: C-141, item: printer, quantity: 1, price: 365,
           status: cancelled, address: 46 Birch Lane}
    """
    expect(x, orders={"ORD-1064": {"escalated": "late"}})


def test_complaint_damaged_grill(x: TestContext, judge: Judge):
    """!
    query: The grill arrived damaged. I want to complain about order ORD-1195.
    user_context: |
      You are Elena Costa. You have little time and give short answers.
      - customer id: C-146
      - order id: ORD-1195
      - reason: damaged
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      orders:
        customers:
        - {id: C-144, name: Ada Park, address: 93 King Street}
        - {id: C-146, name: Elena Costa, address: 18 Garden Street}
        orders:
        - {id: ORD-1074, customer_id: C-144, item: mattress, quantity: 3, price: 120,
           status: delivered, address: 93 King Street}
        - {id: ORD-1089, customer_id: C-146, item: chair, quantity: 1, price: 390,
           status: cancelled, address: 18 Garden Street}
        - {id: ORD-1149, customer_id: C-144, item: hammock, quantity: 1, price: 105,
           status: shipped, address: 93 King Street}
        - {id: ORD-1195, customer_id: C-146, item: grill, quantity: 1, price: 75,
           status: delivered, address: 18 Garden Street}
    """
    expect(x, orders={"ORD-1195": {"escalated": "damaged"}})
