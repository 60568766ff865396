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


def test_orthopedics_while_the_referral_is_valid(x: TestContext, judge: Judge):
    """!
    query: >-
      I have a referral for orthopedics. Could you book me with Dr. Lind, as late as the referral allows? Fadi
      Haddad, 1988-11-23.
    user_context: |
      You are Fadi Haddad. You want the last possible appointment because you travel until then.
      - name: Fadi Haddad
      - birth date: 1988-11-23
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-441, name: Fadi Haddad, birth_date: "1988-11-23", phone: 555-0181}
        slots:
        - {id: S-111, doctor_id: D-5, date: "2025-03-13", time: "08:00"}
        - {id: S-112, doctor_id: D-5, date: "2025-03-19", time: "08:30"}
        - {id: S-113, doctor_id: D-5, date: "2025-03-26", time: "09:00"}
        referrals:
        - {id: R-841, patient_id: P-441, specialty: orthopedics, expires: "2025-03-21"}
    """
    expect(x, appointments={"A-601": {"patient_id": "P-441", "slot_id": "S-112", "status": "booked"}})


def test_no_second_appointment_with_dr_osei(x: TestContext, judge: Judge):
    """!
    query: Please book me another appointment with Dr. Osei this week. Gina Tran, born 1993-09-01.
    user_context: |
      You are Gina Tran. You would like two appointments.
      - name: Gina Tran
      - birth date: 1993-09-01
      - confirm: yes
    tags: ["kind:limit"]
    init:
      clinic:
        patients:
        - {id: P-443, name: Gina Tran, birth_date: "1993-09-01", phone: 555-0183}
        slots:
        - {id: S-121, doctor_id: D-1, date: "2025-03-18", time: "09:00"}
        - {id: S-122, doctor_id: D-1, date: "2025-03-13", time: "11:00"}
        appointments:
        - {id: A-631, patient_id: P-443, slot_id: S-121}
    """
    # One booked appointment with the same doctor is the most.
    expect(x, appointments={"A-631": {"slot_id": "S-121"}})


def test_unknown_patient(x: TestContext, judge: Judge):
    """!
    query: I would like to see Dr. Brandt tomorrow. My name is Henrik Dahl, born 1980-08-20.
    user_context: |
      You are Henrik Dahl. You say 1980-08-20 every time, although the clinic has another date.
      - name: Henrik Dahl
      - birth date: 1980-08-20
      - confirm: yes
    tags: ["kind:limit"]
    init:
      clinic:
        patients:
        - {id: P-445, name: Henrik Dahl, birth_date: "1980-02-08", phone: 555-0185}
        slots:
        - {id: S-131, doctor_id: D-2, date: "2025-03-11", time: "10:00"}
    """
    # The birth date does not match.
    expect(x, patients={"P-445": {"birth_date": "1980-02-08"}})


def test_name_asked_then_the_first_general_slot(x: TestContext, judge: Judge):
    """!
    query: I need to see a general practitioner, whoever is free first.
    user_context: |
      You are Ilse Maurer. You have time every day.
      - name: Ilse Maurer
      - birth date: 1952-05-27
      - confirm: yes
    tags: ["kind:ask"]
    init:
      clinic:
        patients:
        - {id: P-447, name: Ilse Maurer, birth_date: "1952-05-27", phone: 555-0187}
        slots:
        - {id: S-141, doctor_id: D-1, date: "2025-03-13", time: "09:00"}
        - {id: S-142, doctor_id: D-2, date: "2025-03-12", time: "16:00"}
        - {id: S-143, doctor_id: D-2, date: "2025-03-17", time: "08:00"}
    """
    expect(x, appointments={"A-601": {"patient_id": "P-447", "slot_id": "S-142", "status": "booked"}})


def test_dermatology_referral_is_not_cardiology(x: TestContext, judge: Judge):
    """!
    query: Please book Dr. Ruiz for me on Thursday. I was referred last week. Jonas Pohl, 1974-03-31.
    user_context: |
      You are Jonas Pohl. You mix up the specialists.
      - name: Jonas Pohl
      - birth date: 1974-03-31
      - confirm: yes
    tags: ["kind:limit"]
    init:
      clinic:
        patients:
        - {id: P-449, name: Jonas Pohl, birth_date: "1974-03-31", phone: 555-0189}
        slots:
        - {id: S-151, doctor_id: D-4, date: "2025-03-13", time: "15:00"}
        - {id: S-152, doctor_id: D-3, date: "2025-03-13", time: "15:30"}
        referrals:
        - {id: R-851, patient_id: P-449, specialty: dermatology, expires: "2025-06-01"}
    """
    # He was referred to a dermatologist.
    expect(x, referrals={"R-851": {"specialty": "dermatology"}})
