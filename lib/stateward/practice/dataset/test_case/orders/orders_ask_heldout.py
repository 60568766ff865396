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


def test_ask_which_order_then_cancel_radio(x: TestContext, judge: Judge):
    """!
    query: Please cancel my order.
    user_context: |
      You are Carla Evans. You are calm and trust the shop.
      - customer id: C-130
      - order id: ORD-1026
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-130, name: Carla Evans, address: 46 Ash Road}
        - {id: C-134, name: Grace Quinn, address: 38 River Road}
        orders:
        - {id: ORD-1026, customer_id: C-130, item: radio, quantity: 2, price: 25,
           status: processing, address: 46 Ash Road}
        - {id: ORD-1068, customer_id: C-134, item: fan, quantity: 1, price: 475,
           status: shipped, address: 38 River Road}
        - {id: ORD-1113, customer_id: C-130, item: blanket, quantity: 1, price: 385,
           status: shipped, address: 46 Ash Road}
        - {id: ORD-1185, customer_id: C-134, item: lamp, quantity: 1, price: 235,
           status: shipped, address: 38 River Road}
    """
    expect(x, orders={"ORD-1026": {"status": "cancelled"}})


def test_ask_which_order_then_refund_bench(x: TestContext, judge: Judge):
    """!
    query: Please refund my order.
    user_context: |
      You are Hugo Ito. You are brief and answer only what you are asked.
      - customer id: C-129
      - order id: ORD-1174
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-129, name: Hugo Ito, address: 84 Oak Lane}
        - {id: C-168, name: Felix Hayes, address: 72 Hill Road}
        orders:
        - {id: ORD-1045, customer_id: C-168, item: heater, quantity: 1, price: 125,
           status: delivered, address: 72 Hill Road}
        - {id: ORD-1068, customer_id: C-168, item: kettle, quantity: 2, price: 245,
           status: cancelled, address: 72 Hill Road}
        - {id: ORD-1102, customer_id: C-129, item: monitor, quantity: 2, price: 35,
           status: cancelled, address: 84 Oak Lane}
        - {id: ORD-1174, customer_id: C-129, item: bench, quantity: 1, price: 85,
           status: delivered, address: 84 Oak Lane}
    """
    expect(x, orders={"ORD-1174": {"refunded": 85}})


def test_ask_new_address_of_blender(x: TestContext, judge: Judge):
    """!
    query: I moved. Please change the address of order ORD-1143.
    user_context: |
      You are Kira Quinn. You are polite and do not talk much.
      - customer id: C-113
      - order id: ORD-1143
      - address: 79 Oak Lane
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-113, name: Kira Quinn, address: 94 Elm Street}
        - {id: C-114, name: Olga Berg, address: 28 Birch Lane}
        orders:
        - {id: ORD-1000, customer_id: C-114, item: mirror, quantity: 2, price: 240,
           status: cancelled, address: 28 Birch Lane}
        - {id: ORD-1011, customer_id: C-114, item: keyboard, quantity: 1, price: 365,
           status: shipped, address: 28 Birch Lane}
        - {id: ORD-1081, customer_id: C-113, item: helmet, quantity: 2, price: 135,
           status: shipped, address: 94 Elm Street}
        - {id: ORD-1143, customer_id: C-113, item: blender, quantity: 1, price: 290,
           status: processing, address: 94 Elm Street}
    """
    expect(x, orders={"ORD-1143": {"address": "79 Oak Lane"}})


def test_ask_new_quantity_of_backpack(x: TestContext, judge: Judge):
    """!
    query: I want more pieces in order ORD-1049.
    user_context: |
      You are Tara Reed. You have little time and give short answers.
      - customer id: C-190
      - order id: ORD-1049
      - quantity: 5
      - confirm: yes
    tags: ["kind:ask"]
    init:
      orders:
        customers:
        - {id: C-190, name: Tara Reed, address: 66 Hill Road}
        - {id: C-195, name: Victor Weber, address: 26 Elm Street}
        orders:
        - {id: ORD-1000, customer_id: C-195, item: chair, quantity: 1, price: 35,
           status: shipped, address: 26 Elm Street}
        - {id: ORD-1049, customer_id: C-190, item: backpack, quantity: 4, price: 5,
           status: processing, address: 66 Hill Road}
        - {id: ORD-1123, customer_id: C-195, item: stroller, quantity: 3, price: 155,
           status: processing, address: 26 Elm Street}
        - {id: ORD-1142, customer_id: C-190, item: tent, quantity: 1, price: 460,
           status: delivered, address: 66 Hill Road}
    """
    expect(x, orders={"ORD-1049": {"quantity": 5}})


def test_complaint_late_printer(x: TestContext, judge: Judge):
    """!
    query: My printer is late, order ORD-1093. I want to complain.
    user_context: |
      You are Felix Evans. You are friendly and answer what you are asked.
      - customer id: C-189
      - order id: ORD-1093
      - reason: late
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      orders:
        customers:
        - {id: C-132, name: Elena Jensen, address: 38 Oak Lane}
        - {id: C-189, name: Felix Evans, address: 65 Forest Road}
        orders:
        - {id: ORD-1008, customer_id: C-189, item: ladder, quantity: 2, price: 200,
           status: cancelled, address: 65 Forest Road}
        - {id: ORD-1056, customer_id: C-132, item: grill, quantity: 1, price: 400,
           status: cancelled, address: 38 Oak Lane}
        - {id: ORD-1093, customer_id: C-189, item: printer, quantity: 1, price: 20,
           status: shipped, address: 65 Forest Road}
        - {id: ORD-1099, customer_id: C-132, item: helmet, quantity: 4, price: 10,
           status: shipped, address: 38 Oak Lane}
    """
    expect(x, orders={"ORD-1093": {"escalated": "late"}})


def test_complaint_wrong_item_backpack(x: TestContext, judge: Judge):
    """!
    query: I got the wrong item in order ORD-1100. I want to complain.
    user_context: |
      You are Ben Adams. You like things to be done at once.
      - customer id: C-117
      - order id: ORD-1100
      - reason: wrong item
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      orders:
        customers:
        - {id: C-117, name: Ben Adams, address: 79 Garden Street}
        - {id: C-173, name: Ines Berg, address: 13 King Street}
        orders:
        - {id: ORD-1063, customer_id: C-117, item: clock, quantity: 1, price: 35,
           status: shipped, address: 79 Garden Street}
        - {id: ORD-1100, customer_id: C-117, item: backpack, quantity: 1, price: 25,
           status: delivered, address: 79 Garden Street}
        - {id: ORD-1107, customer_id: C-173, item: pillow, quantity: 2, price: 75,
           status: delivered, address: 13 King Street}
        - {id: ORD-1112, customer_id: C-173, item: kettle, quantity: 2, price: 155,
           status: shipped, address: 13 King Street}
    """
    expect(x, orders={"ORD-1100": {"escalated": "wrong item"}})
