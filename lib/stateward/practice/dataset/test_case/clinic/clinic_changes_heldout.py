"""Moving and cancelling appointments."""

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


def test_cancel_dr_ruiz_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: Please cancel my appointment with Dr. Ruiz. I am Mona Aziz, 1970-07-19.
    user_context: |
      You are Mona Aziz. You keep your other appointment.
      - name: Mona Aziz
      - birth date: 1970-07-19
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-417, name: Mona Aziz, birth_date: "1970-07-19", phone: 555-0157}
        slots:
        - {id: S-81, doctor_id: D-4, date: "2025-03-20", time: "09:00"}
        - {id: S-82, doctor_id: D-1, date: "2025-03-21", time: "09:00"}
        appointments:
        - {id: A-618, patient_id: P-417, slot_id: S-81}
        - {id: A-619, patient_id: P-417, slot_id: S-82}
        referrals:
        - {id: R-835, patient_id: P-417, specialty: cardiology, expires: "2025-04-10"}
    """
    expect(x, appointments={"A-618": {"status": "cancelled"}})


def test_move_the_skin_check_two_days_later(x: TestContext, judge: Judge):
    """!
    query: >-
      Could my appointment with Dr. Sato be two days later, at about the same time? Olivia Brandt, 1987-02-07.
    user_context: |
      You are Olivia Brandt. Two days later is 2025-03-19.
      - name: Olivia Brandt
      - birth date: 1987-02-07
      - date: 2025-03-19
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-451, name: Olivia Brandt, birth_date: "1987-02-07", phone: 555-0191}
        - {id: P-452, name: Pia Sommer, birth_date: "1991-01-01", phone: 555-0192}
        slots:
        - {id: S-161, doctor_id: D-3, date: "2025-03-17", time: "10:00"}
        - {id: S-162, doctor_id: D-3, date: "2025-03-18", time: "10:00"}
        - {id: S-163, doctor_id: D-3, date: "2025-03-19", time: "10:15"}
        - {id: S-164, doctor_id: D-3, date: "2025-03-19", time: "16:00"}
        appointments:
        - {id: A-633, patient_id: P-451, slot_id: S-161}
        - {id: A-634, patient_id: P-452, slot_id: S-162}
        referrals:
        - {id: R-861, patient_id: P-451, specialty: dermatology, expires: "2025-03-31"}
    """
    expect(x, appointments={"A-633": {"slot_id": "S-163"}})


def test_this_afternoon_is_too_late_to_cancel(x: TestContext, judge: Judge):
    """!
    query: Please cancel my appointment this afternoon. Quentin Rey, 1965-10-10.
    user_context: |
      You are Quentin Rey. You do not feel like going out.
      - name: Quentin Rey
      - birth date: 1965-10-10
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      clinic:
        patients:
        - {id: P-454, name: Quentin Rey, birth_date: "1965-10-10", phone: 555-0194}
        slots:
        - {id: S-171, doctor_id: D-1, date: "2025-03-10", time: "16:30"}
        - {id: S-172, doctor_id: D-1, date: "2025-03-24", time: "16:30"}
        appointments:
        - {id: A-636, patient_id: P-454, slot_id: S-171}
    """
    # Only the nurse's call is allowed.
    expect(x, nurse_calls={"P-454": {"reason": "late change"}})


def test_no_cancellation_after_second_thoughts(x: TestContext, judge: Judge):
    """!
    query: I might have to cancel Dr. Lind. Stefan Kruse, 1994-08-16.
    user_context: |
      You are Stefan Kruse. When you hear the date, you find that it suits you, and say no.
      - name: Stefan Kruse
      - birth date: 1994-08-16
      - confirm: no
    tags: ["kind:declined"]
    init:
      clinic:
        patients:
        - {id: P-458, name: Stefan Kruse, birth_date: "1994-08-16", phone: 555-0198}
        slots:
        - {id: S-191, doctor_id: D-5, date: "2025-03-27", time: "14:00"}
        appointments:
        - {id: A-641, patient_id: P-458, slot_id: S-191}
        referrals:
        - {id: R-869, patient_id: P-458, specialty: orthopedics, expires: "2025-04-20"}
    """
    # The patient says no, so the appointment stays.
    expect(x, appointments={"A-641": {"status": "booked", "slot_id": "S-191"}})
