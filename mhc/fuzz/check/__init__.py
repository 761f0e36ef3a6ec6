"""One check: a case on one implementation, judged by every gate. In: implementation and case. Out: verdicts."""
