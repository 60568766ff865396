"""Changing the quantity, the address or the note of an order, where the rules allow it."""

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


def test_quantity_of_keyboard(x: TestContext, judge: Judge):
    """!
    query: Set the quantity of order ORD-1062 to 4, please.
    user_context: |
      You are Ines Dunn. You are friendly and answer what you are asked.
      - customer id: C-173
      - order id: ORD-1062
      - quantity: 4
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-149, name: Olga Ito, address: 57 Mill Lane}
        - {id: C-173, name: Ines Dunn, address: 96 Cedar Avenue}
        orders:
        - {id: ORD-1010, customer_id: C-173, item: grill, quantity: 1, price: 395,
           status: shipped, address: 96 Cedar Avenue}
        - {id: ORD-1062, customer_id: C-173, item: keyboard, quantity: 2, price: 10,
           status: processing, address: 96 Cedar Avenue}
        - {id: ORD-1178, customer_id: C-149, item: mirror, quantity: 3, price: 125,
           status: delivered, address: 57 Mill Lane}
        - {id: ORD-1199, customer_id: C-149, item: heater, quantity: 3, price: 15,
           status: delivered, address: 57 Mill Lane}
    """
    expect(x, orders={"ORD-1062": {"quantity": 4}})


def test_quantity_of_chair(x: TestContext, judge: Judge):
    """!
    query: Can I have 8 pieces in order ORD-1121?
    user_context: |
      You are Mia Olsen. You like things to be done at once.
      - customer id: C-127
      - order id: ORD-1121
      - quantity: 8
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-127, name: Mia Olsen, address: 90 Garden Street}
        - {id: C-185, name: Felix Ferrer, address: 99 Church Road}
        orders:
        - {id: ORD-1049, customer_id: C-127, item: stroller, quantity: 2, price: 235,
           status: processing, address: 90 Garden Street}
        - {id: ORD-1058, customer_id: C-185, item: hammock, quantity: 3, price: 10,
           status: shipped, address: 99 Church Road}
        - {id: ORD-1121, customer_id: C-127, item: chair, quantity: 2, price: 15,
           status: processing, address: 90 Garden Street}
        - {id: ORD-1148, customer_id: C-185, item: radio, quantity: 1, price: 155,
           status: processing, address: 99 Church Road}
    """
    expect(x, orders={"ORD-1121": {"quantity": 8}})


def test_no_new_quantity_of_delivered_candle(x: TestContext, judge: Judge):
    """!
    query: 'I made a mistake: order ORD-1096 should be 6 pieces.'
    user_context: |
      You are Elena Berg. You are calm and trust the shop.
      - customer id: C-130
      - order id: ORD-1096
      - quantity: 6
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-120, name: Jonas Grant, address: 93 Maple Street}
        - {id: C-130, name: Elena Berg, address: 25 Bay Street}
        orders:
        - {id: ORD-1096, customer_id: C-130, item: candle, quantity: 4, price: 15,
           status: delivered, address: 25 Bay Street}
        - {id: ORD-1119, customer_id: C-120, item: kettle, quantity: 2, price: 10,
           status: cancelled, address: 93 Maple Street}
        - {id: ORD-1124, customer_id: C-130, item: drill, quantity: 1, price: 490,
           status: cancelled, address: 25 Bay Street}
        - {id: ORD-1185, customer_id: C-120, item: helmet, quantity: 1, price: 440,
           status: cancelled, address: 93 Maple Street}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1096": {"quantity": 4}})


def test_address_of_clock(x: TestContext, judge: Judge):
    """!
    query: Can you deliver the clock, order ORD-1098, to 6 Bay Street?
    user_context: |
      You are Ada Ito. You are brief and answer only what you are asked.
      - customer id: C-120
      - order id: ORD-1098
      - address: 6 Bay Street
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-119, name: Kira Grant, address: 42 Elm Street}
        - {id: C-120, name: Ada Ito, address: 40 Mill Lane}
        orders:
        - {id: ORD-1089, customer_id: C-120, item: bench, quantity: 1, price: 235,
           status: delivered, address: 40 Mill Lane}
        - {id: ORD-1096, customer_id: C-119, item: bookcase, quantity: 3, price: 105,
           status: cancelled, address: 42 Elm Street}
        - {id: ORD-1098, customer_id: C-120, item: clock, quantity: 1, price: 485,
           status: processing, address: 40 Mill Lane}
        - {id: ORD-1150, customer_id: C-119, item: blender, quantity: 1, price: 355,
           status: shipped, address: 42 Elm Street}
    """
    expect(x, orders={"ORD-1098": {"address": "6 Bay Street"}})


def test_address_of_camera(x: TestContext, judge: Judge):
    """!
    query: The address of order ORD-1123 is wrong. It is 32 Oak Lane.
    user_context: |
      You are Carla Silva. You are polite and do not talk much.
      - customer id: C-102
      - order id: ORD-1123
      - address: 32 Oak Lane
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-102, name: Carla Silva, address: 28 Maple Street}
        - {id: C-163, name: Olga Moore, address: 42 Maple Street}
        orders:
        - {id: ORD-1008, customer_id: C-163, item: bench, quantity: 1, price: 440,
           status: processing, address: 42 Maple Street}
        - {id: ORD-1071, customer_id: C-102, item: pillow, quantity: 1, price: 485,
           status: processing, address: 28 Maple Street}
        - {id: ORD-1119, customer_id: C-163, item: keyboard, quantity: 1, price: 410,
           status: shipped, address: 42 Maple Street}
        - {id: ORD-1123, customer_id: C-102, item: camera, quantity: 2, price: 85,
           status: processing, address: 28 Maple Street}
    """
    expect(x, orders={"ORD-1123": {"address": "32 Oak Lane"}})


def test_no_new_address_of_shipped_backpack(x: TestContext, judge: Judge):
    """!
    query: Deliver ORD-1178 to 11 Oak Lane, please.
    user_context: |
      You are Felix Moore. You have little time and give short answers.
      - customer id: C-191
      - order id: ORD-1178
      - address: 11 Oak Lane
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-158, name: Elena Ito, address: 26 Cedar Avenue}
        - {id: C-191, name: Felix Moore, address: 91 Bay Street}
        orders:
        - {id: ORD-1023, customer_id: C-158, item: kettle, quantity: 1, price: 50,
           status: cancelled, address: 26 Cedar Avenue}
        - {id: ORD-1119, customer_id: C-158, item: fan, quantity: 1, price: 315,
           status: processing, address: 26 Cedar Avenue}
        - {id: ORD-1178, customer_id: C-191, item: backpack, quantity: 1, price: 385,
           status: shipped, address: 91 Bay Street}
        - {id: ORD-1188, customer_id: C-191, item: blanket, quantity: 2, price: 125,
           status: shipped, address: 91 Bay Street}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1178": {"address": "91 Bay Street"}})


def test_heater_to_the_home_address(x: TestContext, judge: Judge):
    """!
    query: Can you deliver the heater, order ORD-1138, to my home address?
    user_context: |
      You are Victor Ito. You are friendly and answer what you are asked.
      - customer id: C-158
      - order id: ORD-1138
      - confirm: yes
    tags: ["kind:lookup"]
    init:
      orders:
        customers:
        - {id: C-158, name: Victor Ito, address: 4 Hill Road}
        - {id: C-182, name: Noah Hayes, address: 91 Bay Street}
        orders:
        - {id: ORD-1087, customer_id: C-182, item: mirror, quantity: 3, price: 75,
           status: processing, address: 91 Bay Street}
        - {id: ORD-1089, customer_id: C-158, item: jacket, quantity: 2, price: 110,
           status: processing, address: 4 Hill Road}
        - {id: ORD-1128, customer_id: C-182, item: hammock, quantity: 1, price: 380,
           status: delivered, address: 91 Bay Street}
        - {id: ORD-1138, customer_id: C-158, item: heater, quantity: 1, price: 115,
           status: processing, address: 26 Field Lane}
    """
    expect(x, orders={"ORD-1138": {"address": "4 Hill Road"}})


def test_note_for_clock(x: TestContext, judge: Judge):
    """!
    query: The driver should call before delivery. Please add that note to order ORD-1177.
    user_context: |
      You are Jonas Costa. You like things to be done at once.
      - customer id: C-133
      - order id: ORD-1177
      - note: call before delivery
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-133, name: Jonas Costa, address: 17 Lake Avenue}
        - {id: C-182, name: Noah Dunn, address: 3 Lake Avenue}
        orders:
        - {id: ORD-1058, customer_id: C-182, item: helmet, quantity: 2, price: 5,
           status: cancelled, address: 3 Lake Avenue}
        - {id: ORD-1106, customer_id: C-182, item: ladder, quantity: 2, price: 35,
           status: cancelled, address: 3 Lake Avenue}
        - {id: ORD-1157, customer_id: C-133, item: tent, quantity: 1, price: 25,
           status: shipped, address: 17 Lake Avenue}
        - {id: ORD-1177, customer_id: C-133, item: clock, quantity: 1, price: 75,
           status: processing, address: 17 Lake Avenue}
    """
    expect(x, orders={"ORD-1177": {"note": "call before delivery"}})


def test_no_note_for_delivered_radio(x: TestContext, judge: Judge):
    """!
    query: Please add the note no invoice to order ORD-1188.
    user_context: |
      You are Rosa Olsen. You are calm and trust the shop.
      - customer id: C-135
      - order id: ORD-1188
      - note: no invoice
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-134, name: Mia Grant, address: 36 Maple Street}
        - {id: C-135, name: Rosa Olsen, address: 71 Oak Lane}
        orders:
        - {id: ORD-1060, customer_id: C-135, item: blender, quantity: 2, price: 130,
           status: delivered, address: 71 Oak Lane}
        - {id: ORD-1070, customer_id: C-134, item: grill, quantity: 1, price: 65,
           status: delivered, address: 36 Maple Street}
        - {id: ORD-1188, customer_id: C-135, item: radio, quantity: 1, price: 380,
           status: delivered, address: 71 Oak Lane}
        - {id: ORD-1190, customer_id: C-134, item: monitor, quantity: 1, price: 215,
           status: processing, address: 36 Maple Street}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1188": {"note": ""}})
