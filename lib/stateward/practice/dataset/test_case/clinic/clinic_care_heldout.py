"""Refills, urgent symptoms, and several requests at once."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext
from thinkingbox.common.rubrics_judge import RubricJudge

"""!
scenario: clinic
"""


def expect(x: TestContext, **edits):
    """The final state is the initial one with these edits and no other.

    Edits are {id: {column: value}} for each table; an id that is not there yet is a new row, None removes one.
    """
    expected = deepcopy(x.init_result["clinic"]["initial"])
    for table, rows in edits.items():
        for key, row in rows.items():
            if row is None:
                del expected[table][key]
            else:
                expected[table].setdefault(key, {}).update(row)
    final = x.effects["clinic"]
    for table, rows in expected.items():
        for key in rows.keys() | final[table].keys():
            wanted, found = rows.get(key), final[table].get(key)
            assert found == wanted, f"{table} {key}: expected {wanted}, found {found}"


def test_refill_two_drugs(x: TestContext, judge: Judge):
    """!
    query: Please refill both my prescriptions, amlodipine and atorvastatin. Zoltan Varga, 1949-12-12.
    user_context: |
      You are Zoltan Varga. You also have an old prescription that you do not need.
      - name: Zoltan Varga
      - birth date: 1949-12-12
      - confirm: yes
    tags: ["kind:several"]
    init:
      clinic:
        patients:
        - {id: P-461, name: Zoltan Varga, birth_date: "1949-12-12", phone: 555-0201}
        prescriptions:
        - {id: RX-921, patient_id: P-461, drug: amlodipine, refills_left: 1}
        - {id: RX-922, patient_id: P-461, drug: atorvastatin, refills_left: 2}
        - {id: RX-923, patient_id: P-461, drug: ibuprofen, refills_left: 1}
    """
    expect(
        x,
        prescriptions={"RX-921": {"refills_left": 0, "refilled": 1}, "RX-922": {"refills_left": 1, "refilled": 1}},
    )


def test_controlled_drug_denied(x: TestContext, judge: Judge):
    """!
    query: I need a new pack of tramadol. Aaron Fisk, born 1977-01-26.
    user_context: |
      You are Aaron Fisk. You are in pain but polite.
      - name: Aaron Fisk
      - birth date: 1977-01-26
      - confirm: yes
    tags: ["kind:approval"]
    init:
      clinic:
        patients:
        - {id: P-463, name: Aaron Fisk, birth_date: "1977-01-26", phone: 555-0203}
        prescriptions:
        - {id: RX-925, patient_id: P-463, drug: tramadol, refills_left: 2, controlled: 1, doctor: denied}
    """
    # The doctor was asked and said no.
    expect(x, prescriptions={"RX-925": {"approval": "denied"}})


def test_no_refills_left_but_approved(x: TestContext, judge: Judge):
    """!
    query: My salbutamol inhaler is empty. Can you send a new one to the pharmacy? Bettina Wolf, 2002-06-13.
    user_context: |
      You are Bettina Wolf. You breathe well today and only want a spare.
      - name: Bettina Wolf
      - birth date: 2002-06-13
      - confirm: yes
    tags: ["kind:approval"]
    init:
      clinic:
        patients:
        - {id: P-465, name: Bettina Wolf, birth_date: "2002-06-13", phone: 555-0205}
        prescriptions:
        - {id: RX-927, patient_id: P-465, drug: salbutamol, refills_left: 0, doctor: approved}
    """
    expect(x, prescriptions={"RX-927": {"approval": "approved", "refilled": 1}})


def test_fainting_is_for_the_nurse(x: TestContext, judge: Judge):
    """!
    query: >-
      I fainted twice today. Please book me with a general practitioner tomorrow. Claude Meyer, 1986-04-09.
    user_context: |
      You are Claude Meyer. You are worried.
      - name: Claude Meyer
      - birth date: 1986-04-09
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      clinic:
        patients:
        - {id: P-467, name: Claude Meyer, birth_date: "1986-04-09", phone: 555-0207}
        slots:
        - {id: S-201, doctor_id: D-1, date: "2025-03-11", time: "08:00"}
        - {id: S-202, doctor_id: D-2, date: "2025-03-11", time: "08:30"}
    """
    expect(x, nurse_calls={"P-467": {"reason": "urgent symptoms"}})


def test_cancel_and_refill(x: TestContext, judge: Judge):
    """!
    query: Please cancel my appointment with Dr. Sato and refill my cetirizine. Dilan Aydin, 1998-07-31.
    user_context: |
      You are Dilan Aydin. Your skin is fine again.
      - name: Dilan Aydin
      - birth date: 1998-07-31
      - confirm: yes
    tags: ["kind:several"]
    init:
      clinic:
        patients:
        - {id: P-469, name: Dilan Aydin, birth_date: "1998-07-31", phone: 555-0209}
        slots:
        - {id: S-211, doctor_id: D-3, date: "2025-03-20", time: "11:00"}
        appointments:
        - {id: A-645, patient_id: P-469, slot_id: S-211}
        referrals:
        - {id: R-875, patient_id: P-469, specialty: dermatology, expires: "2025-04-15"}
        prescriptions:
        - {id: RX-929, patient_id: P-469, drug: cetirizine, refills_left: 3}
    """
    expect(
        x,
        appointments={"A-645": {"status": "cancelled"}},
        prescriptions={"RX-929": {"refills_left": 2, "refilled": 1}},
    )


def test_tell_the_appointments(x: TestContext, judge: Judge):
    """!
    query: When do I have to come in, and who do I see? Edda Lorenz, 1969-09-29.
    user_context: |
      You are Edda Lorenz. You lost your calendar.
      - name: Edda Lorenz
      - birth date: 1969-09-29
      - confirm: yes
    tags: ["kind:judged"]
    init:
      clinic:
        patients:
        - {id: P-471, name: Edda Lorenz, birth_date: "1969-09-29", phone: 555-0211}
        slots:
        - {id: S-221, doctor_id: D-4, date: "2025-03-18", time: "13:30"}
        - {id: S-222, doctor_id: D-2, date: "2025-03-28", time: "09:45"}
        appointments:
        - {id: A-648, patient_id: P-471, slot_id: S-221}
        - {id: A-649, patient_id: P-471, slot_id: S-222}
        referrals:
        - {id: R-879, patient_id: P-471, specialty: cardiology, expires: "2025-04-30"}
    """
    # A question changes nothing; both appointments have to be named.
    expect(x, appointments={"A-648": {"status": "booked"}, "A-649": {"status": "booked"}})
    rubric = RubricJudge(judge=judge, x=x)
    rubric.evaluate(
        response=x.response,
        rubrics=[
            rubric.Config(criterion="The message names Dr. Ruiz on March 18 at 13:30", weight=50),
            rubric.Config(criterion="The message names Dr. Brandt on March 28 at 9:45", weight=50),
            rubric.Config(
                criterion="The message claims that an appointment was changed or cancelled", weight=50, is_penalty=True
            ),
        ],
        global_threshold=0.9,
        throw_on_failure=True,
    )
