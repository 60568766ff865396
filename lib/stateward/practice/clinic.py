"""The clinic: appointments, referrals and prescription refills."""

from __future__ import annotations

from typing import Any, Literal, get_args

from stateward.practice.desk import Desk, Refusal, tool

Specialty = Literal["general", "dermatology", "cardiology", "orthopedics"]
NurseReason = Literal["urgent symptoms", "late change", "other"]
SPECIALTIES: tuple[str, ...] = get_args(Specialty)
NURSE_REASONS: tuple[str, ...] = get_args(NurseReason)


class ClinicDesk(Desk):
    """Configuration: ``doctors`` (id, name, specialty), ``slots`` (id, doctor_id, date, time), ``patients`` (id, name,
    birth_date, phone), ``appointments`` (id, patient_id, slot_id), ``referrals`` (id, patient_id, specialty, expires),
    ``prescriptions`` (id, patient_id, drug, controlled, refills_left, doctor: the answer to a request for approval) and
    ``nurse_calls``, which starts empty. A slot without a booked appointment is free."""

    ddl = """
        CREATE TABLE doctors (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            specialty TEXT NOT NULL CHECK (specialty IN ('general', 'dermatology', 'cardiology', 'orthopedics'))
        );
        CREATE TABLE slots (
            id TEXT PRIMARY KEY,
            doctor_id TEXT NOT NULL REFERENCES doctors (id),
            date TEXT NOT NULL,
            time TEXT NOT NULL
        );
        CREATE TABLE patients (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            birth_date TEXT NOT NULL,
            phone TEXT NOT NULL
        );
        CREATE TABLE appointments (
            id TEXT PRIMARY KEY,
            patient_id TEXT NOT NULL REFERENCES patients (id),
            slot_id TEXT NOT NULL REFERENCES slots (id),
            status TEXT NOT NULL DEFAULT 'booked' CHECK (status IN ('booked', 'cancelled'))
        );
        CREATE TABLE referrals (
            id TEXT PRIMARY KEY,
            patient_id TEXT NOT NULL REFERENCES patients (id),
            specialty TEXT NOT NULL,
            expires TEXT NOT NULL
        );
        CREATE TABLE prescriptions (
            id TEXT PRIMARY KEY,
            patient_id TEXT NOT NULL REFERENCES patients (id),
            drug TEXT NOT NULL,
            controlled INTEGER NOT NULL DEFAULT 0,
            refills_left INTEGER NOT NULL,
            refilled INTEGER NOT NULL DEFAULT 0,
            approval TEXT NOT NULL DEFAULT '' CHECK (approval IN ('', 'approved', 'denied')),
            doctor TEXT NOT NULL DEFAULT 'approved' CHECK (doctor IN ('approved', 'denied'))
        );
        CREATE TABLE nurse_calls (id TEXT PRIMARY KEY REFERENCES patients (id), reason TEXT NOT NULL);
    """

    def _row(self, table: str, key: str) -> dict[str, Any]:
        row = self.database.row(f"SELECT * FROM {table} WHERE id = ?", key)
        if row is None:
            raise Refusal(f"no {table.removesuffix('s')} {key}")
        return row

    def _free(self, slot_id: str) -> None:
        self._row("slots", slot_id)
        if self.database.row("SELECT id FROM appointments WHERE slot_id = ? AND status = 'booked'", slot_id):
            raise Refusal(f"slot {slot_id} is taken")

    @tool
    def find_patient(self, name: str, birth_date: str) -> dict[str, Any]:
        """Find a patient by full name and birth date (YYYY-MM-DD)."""
        row = self.database.row(
            "SELECT * FROM patients WHERE name = ? COLLATE NOCASE AND birth_date = ?", name.strip(), birth_date.strip()
        )
        if row is None:
            raise Refusal("no patient with this name and birth date")
        return {"patient_id": row["id"], "name": row["name"], "phone": row["phone"]}

    @tool
    def list_doctors(self, specialty: Specialty) -> dict[str, Any]:
        """The doctors of a specialty."""
        if specialty not in SPECIALTIES:
            raise Refusal(f"the specialties are: {', '.join(SPECIALTIES)}")
        rows = self.database.rows("SELECT id, name FROM doctors WHERE specialty = ? ORDER BY id", specialty)
        return {row["id"]: row["name"] for row in rows}

    @tool
    def list_free_slots(self, doctor_id: str) -> dict[str, Any]:
        """A doctor's free slots: date and time."""
        self._row("doctors", doctor_id)
        rows = self.database.rows(
            "SELECT id, date, time FROM slots WHERE doctor_id = ? AND id NOT IN "
            "(SELECT slot_id FROM appointments WHERE status = 'booked') ORDER BY date, time",
            doctor_id,
        )
        return {row["id"]: f"{row['date']} {row['time']}" for row in rows}

    @tool
    def list_appointments(self, patient_id: str) -> dict[str, Any]:
        """A patient's booked appointments."""
        self._row("patients", patient_id)
        rows = self.database.rows(
            "SELECT appointments.id, slot_id, date, time, doctors.id AS doctor_id, doctors.name AS doctor, specialty "
            "FROM appointments JOIN slots ON slots.id = slot_id JOIN doctors ON doctors.id = doctor_id "
            "WHERE patient_id = ? AND status = 'booked' ORDER BY date, time",
            patient_id,
        )
        return {row.pop("id"): row for row in rows}

    @tool
    def list_referrals(self, patient_id: str) -> dict[str, Any]:
        """A patient's referrals to specialists and the last day each is valid."""
        self._row("patients", patient_id)
        rows = self.database.rows("SELECT * FROM referrals WHERE patient_id = ? ORDER BY id", patient_id)
        return {row["id"]: {"specialty": row["specialty"], "expires": row["expires"]} for row in rows}

    @tool
    def book_appointment(self, patient_id: str, slot_id: str) -> dict[str, Any]:
        """Book a free slot for a patient."""
        self._row("patients", patient_id)
        self._free(slot_id)
        last = self.database.row("SELECT max(CAST(substr(id, 3) AS INTEGER)) AS n FROM appointments")
        appointment_id = f"A-{((last or {}).get('n') or 600) + 1}"
        self.database.execute(
            "INSERT INTO appointments (id, patient_id, slot_id) VALUES (?, ?, ?)", appointment_id, patient_id, slot_id
        )
        return {"appointment_id": appointment_id, "patient_id": patient_id, "slot_id": slot_id}

    @tool
    def move_appointment(self, appointment_id: str, slot_id: str) -> dict[str, Any]:
        """Move a booked appointment to a free slot."""
        if self._row("appointments", appointment_id)["status"] != "booked":
            raise Refusal(f"appointment {appointment_id} is cancelled")
        self._free(slot_id)
        self.database.execute("UPDATE appointments SET slot_id = ? WHERE id = ?", slot_id, appointment_id)
        return {"appointment_id": appointment_id, "slot_id": slot_id}

    @tool
    def cancel_appointment(self, appointment_id: str) -> dict[str, Any]:
        """Cancel a booked appointment."""
        if self._row("appointments", appointment_id)["status"] != "booked":
            raise Refusal(f"appointment {appointment_id} is cancelled already")
        self.database.execute("UPDATE appointments SET status = 'cancelled' WHERE id = ?", appointment_id)
        return {"appointment_id": appointment_id, "status": "cancelled"}

    @tool
    def list_prescriptions(self, patient_id: str) -> dict[str, Any]:
        """A patient's prescriptions: drug, whether it is a controlled drug, refills left."""
        self._row("patients", patient_id)
        rows = self.database.rows("SELECT * FROM prescriptions WHERE patient_id = ? ORDER BY id", patient_id)
        return {
            row["id"]: {
                "drug": row["drug"],
                "controlled": bool(row["controlled"]),
                "refills_left": row["refills_left"],
            }
            for row in rows
        }

    @tool
    def request_refill_approval(self, prescription_id: str) -> dict[str, Any]:
        """Ask the doctor to approve a refill: approved or denied."""
        answer = self._row("prescriptions", prescription_id)["doctor"]
        self.database.execute("UPDATE prescriptions SET approval = ? WHERE id = ?", answer, prescription_id)
        return {"prescription_id": prescription_id, "approval": answer}

    @tool
    def refill_prescription(self, prescription_id: str) -> dict[str, Any]:
        """Order a refill. Uses up one of the refills left, if there are any."""
        self._row("prescriptions", prescription_id)
        self.database.execute(
            "UPDATE prescriptions SET refilled = refilled + 1, refills_left = max(refills_left - 1, 0) WHERE id = ?",
            prescription_id,
        )
        return {"prescription_id": prescription_id, "refilled": True}

    @tool
    def call_nurse(self, patient_id: str, reason: NurseReason) -> dict[str, Any]:
        """Ask a nurse to phone the patient back."""
        self._row("patients", patient_id)
        if reason not in NURSE_REASONS:
            raise Refusal(f"the reasons are: {', '.join(NURSE_REASONS)}")
        self.database.execute("INSERT OR REPLACE INTO nurse_calls VALUES (?, ?)", patient_id, reason)
        return {"patient_id": patient_id, "nurse_call": reason}
