"""Functions that are called at a time, unless they are cancelled before: one thread for all of them, as one for each takes longer
to start than a load that finds its bytes takes, and waits for a processor where all are busy.

The thread is started by the first alarm and ends when there was none for a while. A forked child has none, and no alarms."""
import os
import threading
import time

_IDLE_S = 60.0


class Alarm:
    """One of them, at a time of the monotonic clock."""

    def __init__(self, end, function):
        self.end, self.function = end, function


class _Alarms:
    def __init__(self):
        self.start_over()

    def start_over(self):
        self._changed, self._set = threading.Condition(), set()
        self._sleeps_until = None  # of the thread; None = there is none

    def set(self, seconds, function):
        """Has function() called in so many seconds, on the thread of the alarms: it returns soon and raises nothing."""
        alarm = Alarm(time.monotonic() + seconds, function)
        with self._changed:
            if self._sleeps_until is None:
                threading.Thread(target=self._run, name="tensorcast-alarms", daemon=True).start()
                self._sleeps_until = alarm.end
            elif alarm.end < self._sleeps_until:
                self._changed.notify()
            self._set.add(alarm)
        return alarm

    def cancel(self, alarm):
        """Afterwards its function is not called, unless that has begun."""
        with self._changed:
            self._set.discard(alarm)

    def _run(self):
        was_idle = False
        while True:
            with self._changed:
                now = time.monotonic()
                due = sorted((alarm for alarm in self._set if alarm.end <= now), key=lambda alarm: alarm.end)
                self._set.difference_update(due)
                if not due:
                    if was_idle and not self._set:
                        self._sleeps_until = None
                        return
                    was_idle = not self._set
                    self._sleeps_until = min((alarm.end for alarm in self._set), default=now + _IDLE_S)
                    self._changed.wait(self._sleeps_until - now)
            for alarm in due:
                alarm.function()


alarms = _Alarms()
os.register_at_fork(after_in_child=alarms.start_over)
