"""Booking: referrals, free slots and who the patient is."""

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


def test_earliest_with_dr_osei(x: TestContext, judge: Judge):
    """!
    query: >-
      I need an appointment with Dr. Osei, the earliest one you have. My name is Ana Kovac, born 1985-07-14.
    user_context: |
      You are Ana Kovac. You are free at any time.
      - name: Ana Kovac
      - birth date: 1985-07-14
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-401, name: Ana Kovac, birth_date: "1985-07-14", phone: 555-0141}
        - {id: P-402, name: Boris Lenk, birth_date: "1972-01-09", phone: 555-0142}
        slots:
        - {id: S-11, doctor_id: D-1, date: "2025-03-11", time: "09:00"}
        - {id: S-12, doctor_id: D-1, date: "2025-03-12", time: "10:30"}
        - {id: S-13, doctor_id: D-1, date: "2025-03-13", time: "08:30"}
        - {id: S-14, doctor_id: D-2, date: "2025-03-11", time: "08:00"}
        appointments:
        - {id: A-601, patient_id: P-402, slot_id: S-11}
    """
    expect(x, appointments={"A-602": {"patient_id": "P-401", "slot_id": "S-12", "status": "booked"}})


def test_dermatology_with_a_referral(x: TestContext, judge: Judge):
    """!
    query: >-
      My doctor sent me to a dermatologist. Please book the first free appointment with Dr. Sato. I am Ben
      Achterberg, 1990-02-20.
    user_context: |
      You are Ben Achterberg. You have a referral.
      - name: Ben Achterberg
      - birth date: 1990-02-20
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-404, name: Ben Achterberg, birth_date: "1990-02-20", phone: 555-0144}
        slots:
        - {id: S-21, doctor_id: D-3, date: "2025-03-14", time: "11:00"}
        - {id: S-22, doctor_id: D-3, date: "2025-03-17", time: "11:30"}
        - {id: S-23, doctor_id: D-4, date: "2025-03-14", time: "09:00"}
        referrals:
        - {id: R-801, patient_id: P-404, specialty: dermatology, expires: "2025-04-30"}
    """
    expect(x, appointments={"A-601": {"patient_id": "P-404", "slot_id": "S-21", "status": "booked"}})


def test_no_cardiology_without_a_referral(x: TestContext, judge: Judge):
    """!
    query: I want to see the cardiologist for a check-up, any day this week. Cora Dimas, born 1967-10-03.
    user_context: |
      You are Cora Dimas. You feel well and are only curious. You have no referral.
      - name: Cora Dimas
      - birth date: 1967-10-03
      - confirm: yes
    tags: ["kind:limit"]
    init:
      clinic:
        patients:
        - {id: P-406, name: Cora Dimas, birth_date: "1967-10-03", phone: 555-0146}
        slots:
        - {id: S-31, doctor_id: D-4, date: "2025-03-12", time: "14:00"}
        - {id: S-32, doctor_id: D-4, date: "2025-03-13", time: "14:30"}
        referrals:
        - {id: R-811, patient_id: P-406, specialty: orthopedics, expires: "2025-05-15"}
    """
    # Her referral is for orthopedics.
    expect(x, referrals={"R-811": {"specialty": "orthopedics"}})


def test_birth_date_asked_then_dr_brandt(x: TestContext, judge: Judge):
    """!
    query: Hi, this is David Ferro. Could I see Dr. Brandt on Friday morning?
    user_context: |
      You are David Ferro. Friday is 2025-03-14.
      - name: David Ferro
      - birth date: 2001-12-24
      - date: 2025-03-14
      - confirm: yes
    tags: ["kind:ask"]
    init:
      clinic:
        patients:
        - {id: P-408, name: David Ferro, birth_date: "2001-12-24", phone: 555-0148}
        - {id: P-409, name: David Ferro, birth_date: "1959-04-18", phone: 555-0149}
        slots:
        - {id: S-41, doctor_id: D-2, date: "2025-03-13", time: "09:30"}
        - {id: S-42, doctor_id: D-2, date: "2025-03-14", time: "09:30"}
        - {id: S-43, doctor_id: D-2, date: "2025-03-14", time: "15:00"}
    """
    expect(x, appointments={"A-601": {"patient_id": "P-408", "slot_id": "S-42", "status": "booked"}})


def test_referral_runs_out_before_the_first_slot(x: TestContext, judge: Judge):
    """!
    query: Please book me with Dr. Lind, the orthopedist. Eva Stolz, 1978-06-06. I have a referral.
    user_context: |
      You are Eva Stolz. You did not look at the date on the referral.
      - name: Eva Stolz
      - birth date: 1978-06-06
      - confirm: yes
    tags: ["kind:limit"]
    init:
      clinic:
        patients:
        - {id: P-411, name: Eva Stolz, birth_date: "1978-06-06", phone: 555-0151}
        slots:
        - {id: S-51, doctor_id: D-5, date: "2025-03-20", time: "10:00"}
        - {id: S-52, doctor_id: D-5, date: "2025-03-24", time: "10:00"}
        referrals:
        - {id: R-821, patient_id: P-411, specialty: orthopedics, expires: "2025-03-15"}
    """
    # The referral is no longer valid on the day of any free slot.
    expect(x, referrals={"R-821": {"expires": "2025-03-15"}})
