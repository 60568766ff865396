"""Refills, urgent symptoms, and several requests at once."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext

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


def test_refill_with_refills_left(x: TestContext, judge: Judge):
    """!
    query: I am running out of lisinopril, could you order a refill? Tessa Molnar, 1958-09-22.
    user_context: |
      You are Tessa Molnar. You need only this drug.
      - name: Tessa Molnar
      - birth date: 1958-09-22
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-421, name: Tessa Molnar, birth_date: "1958-09-22", phone: 555-0161}
        prescriptions:
        - {id: RX-901, patient_id: P-421, drug: lisinopril, refills_left: 2}
        - {id: RX-902, patient_id: P-421, drug: metformin, refills_left: 3}
    """
    expect(x, prescriptions={"RX-901": {"refills_left": 1, "refilled": 1}})


def test_controlled_drug_approved(x: TestContext, judge: Judge):
    """!
    query: Please refill my zolpidem. Uwe Franke, 1973-11-30.
    user_context: |
      You are Uwe Franke. You sleep badly.
      - name: Uwe Franke
      - birth date: 1973-11-30
      - confirm: yes
    tags: ["kind:approval"]
    init:
      clinic:
        patients:
        - {id: P-423, name: Uwe Franke, birth_date: "1973-11-30", phone: 555-0163}
        prescriptions:
        - {id: RX-905, patient_id: P-423, drug: zolpidem, refills_left: 1, controlled: 1, doctor: approved}
    """
    expect(x, prescriptions={"RX-905": {"approval": "approved", "refills_left": 0, "refilled": 1}})


def test_no_refills_left_and_denied(x: TestContext, judge: Judge):
    """!
    query: Could I get another pack of omeprazole? Viola Neri, born 1989-06-28.
    user_context: |
      You are Viola Neri. You will come in if you have to.
      - name: Viola Neri
      - birth date: 1989-06-28
      - confirm: yes
    tags: ["kind:approval"]
    init:
      clinic:
        patients:
        - {id: P-425, name: Viola Neri, birth_date: "1989-06-28", phone: 555-0165}
        prescriptions:
        - {id: RX-908, patient_id: P-425, drug: omeprazole, refills_left: 0, doctor: denied}
        - {id: RX-909, patient_id: P-425, drug: cetirizine, refills_left: 4}
    """
    # The doctor was asked and said no.
    expect(x, prescriptions={"RX-908": {"approval": "denied"}})


def test_chest_pain_is_for_the_nurse(x: TestContext, judge: Judge):
    """!
    query: I have had chest pain since this morning. Can I see Dr. Osei on Friday? Walter Crane, 1960-04-15.
    user_context: |
      You are Walter Crane. You would accept whatever the clinic suggests.
      - name: Walter Crane
      - birth date: 1960-04-15
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      clinic:
        patients:
        - {id: P-427, name: Walter Crane, birth_date: "1960-04-15", phone: 555-0167}
        slots:
        - {id: S-95, doctor_id: D-1, date: "2025-03-14", time: "10:00"}
        - {id: S-96, doctor_id: D-4, date: "2025-03-11", time: "10:00"}
    """
    expect(x, nurse_calls={"P-427": {"reason": "urgent symptoms"}})


def test_refill_and_move(x: TestContext, judge: Judge):
    """!
    query: >-
      Two things, please: refill my levothyroxine and move my appointment with Dr. Brandt to 2025-03-21. Xenia
      Popov, 1992-10-01.
    user_context: |
      You are Xenia Popov. You like short answers.
      - name: Xenia Popov
      - birth date: 1992-10-01
      - date: 2025-03-21
      - confirm: yes
    tags: ["kind:several"]
    init:
      clinic:
        patients:
        - {id: P-429, name: Xenia Popov, birth_date: "1992-10-01", phone: 555-0169}
        slots:
        - {id: S-101, doctor_id: D-2, date: "2025-03-14", time: "09:00"}
        - {id: S-102, doctor_id: D-2, date: "2025-03-21", time: "10:00"}
        appointments:
        - {id: A-625, patient_id: P-429, slot_id: S-101}
        prescriptions:
        - {id: RX-912, patient_id: P-429, drug: levothyroxine, refills_left: 5}
    """
    expect(
        x,
        appointments={"A-625": {"slot_id": "S-102"}},
        prescriptions={"RX-912": {"refills_left": 4, "refilled": 1}},
    )


def test_explain_a_late_change(x: TestContext, judge: Judge):
    """!
    query: >-
      I have an appointment today at 15:00, but my bus is not running. Please cancel it. Yara Nasser, 1997-03-03.
    user_context: |
      You are Yara Nasser. You want to know what happens next.
      - name: Yara Nasser
      - birth date: 1997-03-03
      - confirm: yes
    tags: ["kind:judged"]
    init:
      clinic:
        patients:
        - {id: P-431, name: Yara Nasser, birth_date: "1997-03-03", phone: 555-0171}
        slots:
        - {id: S-105, doctor_id: D-1, date: "2025-03-10", time: "15:00"}
        appointments:
        - {id: A-628, patient_id: P-431, slot_id: S-105}
    """
    # The nurse is told, and so is the patient.
    expect(x, nurse_calls={"P-431": {"reason": "late change"}})
    assert judge.text_yesno(x.response, "Does the message say that a nurse will call the patient back?")
