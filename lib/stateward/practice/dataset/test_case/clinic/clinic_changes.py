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


def test_move_to_wednesday_afternoon(x: TestContext, judge: Judge):
    """!
    query: >-
      Something came up. Can you move my appointment with Dr. Osei to Wednesday next week, in the afternoon? Kara
      Holm, 1996-01-11.
    user_context: |
      You are Kara Holm. Wednesday next week is 2025-03-19.
      - name: Kara Holm
      - birth date: 1996-01-11
      - date: 2025-03-19
      - confirm: yes
    tags: ["kind:write"]
    init:
      clinic:
        patients:
        - {id: P-413, name: Kara Holm, birth_date: "1996-01-11", phone: 555-0153}
        slots:
        - {id: S-61, doctor_id: D-1, date: "2025-03-14", time: "10:00"}
        - {id: S-62, doctor_id: D-1, date: "2025-03-19", time: "09:00"}
        - {id: S-63, doctor_id: D-1, date: "2025-03-19", time: "15:30"}
        - {id: S-64, doctor_id: D-3, date: "2025-03-21", time: "12:00"}
        appointments:
        - {id: A-611, patient_id: P-413, slot_id: S-61}
        - {id: A-612, patient_id: P-413, slot_id: S-64}
        referrals:
        - {id: R-831, patient_id: P-413, specialty: dermatology, expires: "2025-04-01"}
    """
    expect(x, appointments={"A-611": {"slot_id": "S-63"}})


def test_tomorrow_is_too_late_to_move(x: TestContext, judge: Judge):
    """!
    query: I cannot come tomorrow. Please move my appointment to next week. Levi Stern, born 1983-12-02.
    user_context: |
      You are Levi Stern. You have to work tomorrow.
      - name: Levi Stern
      - birth date: 1983-12-02
      - confirm: yes
    tags: ["kind:hand_over"]
    init:
      clinic:
        patients:
        - {id: P-415, name: Levi Stern, birth_date: "1983-12-02", phone: 555-0155}
        slots:
        - {id: S-71, doctor_id: D-2, date: "2025-03-11", time: "11:00"}
        - {id: S-72, doctor_id: D-2, date: "2025-03-18", time: "11:00"}
        appointments:
        - {id: A-615, patient_id: P-415, slot_id: S-71}
    """
    # Only the nurse's call is allowed.
    expect(x, nurse_calls={"P-415": {"reason": "late change"}})


def test_keep_the_appointment_after_all(x: TestContext, judge: Judge):
    """!
    query: I think I want to cancel my appointment next week. Nils Berger, 1999-04-04.
    user_context: |
      You are Nils Berger. Asked to confirm, you decide to keep the appointment and say no.
      - name: Nils Berger
      - birth date: 1999-04-04
      - confirm: no
    tags: ["kind:declined"]
    init:
      clinic:
        patients:
        - {id: P-419, name: Nils Berger, birth_date: "1999-04-04", phone: 555-0159}
        slots:
        - {id: S-91, doctor_id: D-2, date: "2025-03-19", time: "13:00"}
        - {id: S-92, doctor_id: D-2, date: "2025-03-20", time: "13:00"}
        appointments:
        - {id: A-621, patient_id: P-419, slot_id: S-91}
    """
    # The patient says no, so the appointment stays.
    expect(x, appointments={"A-621": {"status": "booked"}})


def test_cancel_both_appointments_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: I am moving away. Please cancel everything I have booked. Rosa Pinto, born 1981-05-05.
    user_context: |
      You are Rosa Pinto. You are leaving the city at the end of the week.
      - name: Rosa Pinto
      - birth date: 1981-05-05
      - confirm: yes
    tags: ["kind:several"]
    init:
      clinic:
        patients:
        - {id: P-456, name: Rosa Pinto, birth_date: "1981-05-05", phone: 555-0196}
        slots:
        - {id: S-181, doctor_id: D-5, date: "2025-03-17", time: "12:00"}
        - {id: S-182, doctor_id: D-2, date: "2025-03-25", time: "08:00"}
        appointments:
        - {id: A-638, patient_id: P-456, slot_id: S-181}
        - {id: A-639, patient_id: P-456, slot_id: S-182}
        referrals:
        - {id: R-865, patient_id: P-456, specialty: orthopedics, expires: "2025-05-01"}
    """
    expect(x, appointments={"A-638": {"status": "cancelled"}, "A-639": {"status": "cancelled"}})
