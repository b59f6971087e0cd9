"""One run of a redrive: in this process or on Spark, with its signals, progress and end."""

from importlib.util import find_spec

from rich.console import Console

from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.redrive import redrive
from pairbus.backlog.redrive_options import RedriveOptions
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.cli.backlog_command import DONE, FAILED, STOPPED
from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import print_error, print_json, print_warning
from pairbus.cli.dead_letters_screen import RedriveScreen, dead_letters, print_outcome
from pairbus.cli.spark_requirements import PACKAGES, check_spark, java_problem
from pairbus.cli.threads import run_in_thread
from pairbus.errors import PairbusError
from pairbus.spark.error_summary import error_summary
from pairbus.spark.usage import UsageRecorder

INCOMPLETE = 3
SPARK_THRESHOLD = 100_000
"""Above this number of messages in several queues, Spark is used if it is installed."""


class RedriveRun:
    """Runs a redrive until it is finished, stuck or stopped."""

    def __init__(
        self,
        source: DeadLetterSource,
        plan: RedrivePlan,
        usage: UsageRecorder,
        *,
        max_rate: float | None,
        as_json: bool,
    ) -> None:
        self._source = source
        self._plan = plan
        self._usage = usage
        self._max_rate = max_rate
        self._as_json = as_json

    def run(
        self, out: Console, err: Console, *, spark: bool | None, master: str | None
    ) -> tuple[int, bool]:
        """Return the exit status, and True if no message is left to be tried."""
        if spark is None:
            spark = wants_spark(self._plan) and self._spark_is_installed(err)
        if spark and not check_spark(err, master):
            return FAILED, False
        with (
            cancel_on_signal() as cancel,
            RedriveScreen(err, "moving", len(self._plan), quiet=self._as_json) as screen,
        ):
            options = RedriveOptions(
                max_rate=self._max_rate, usage=self._usage, cancel=cancel, on_progress=screen.show
            )
            try:
                if spark:
                    outcome = self._run_on_spark(err, master, options)
                else:
                    outcome = redrive(self._source, self._plan, **options)
            except PairbusError:
                raise
            except Exception as exc:  # noqa: BLE001  any error of Spark
                problem = error_summary(exc).removesuffix(".")
                print_error(err, f"{problem}. Nothing is lost; run it again.")
                return FAILED, False
        return self._report(out, err, outcome), outcome.finished

    def _run_on_spark(
        self, err: Console, master: str | None, options: RedriveOptions
    ) -> RedriveOutcome:
        from pairbus.backlog.redrive_on_spark import redrive_on_spark
        from pairbus.spark.sessions import lease_session

        if not self._as_json:
            err.print("Starting Spark…")
        # In the main thread, Spark would replace our handler of Ctrl-C with its own.
        lease = run_in_thread(lambda: lease_session(master))
        try:
            return run_in_thread(
                lambda: redrive_on_spark(lease.session, self._source, self._plan, **options)
            )
        finally:
            run_in_thread(lease.release)

    def _spark_is_installed(self, err: Console) -> bool:
        found = all(map(find_spec, PACKAGES)) and java_problem() is None
        count = dead_letters(len(self._plan))
        if self._as_json:
            return found
        if found:
            err.print(f"{count} in {len(self._plan.queues)} queues: running on Spark (--no-spark).")
        else:
            err.print(
                f"{count}: Spark would move several queues at once, but pyspark or Java is not "
                "installed."
            )
        return found

    def _report(self, out: Console, err: Console, outcome: RedriveOutcome) -> int:
        if self._as_json:
            print_json(outcome.to_json())
        else:
            print_outcome(out, err, outcome, purge=False)
        if outcome.cancelled:
            print_warning(err, "Stopped. Nothing is lost; run the same command again to continue.")
            return STOPPED
        if not outcome.finished:
            print_warning(
                err,
                "Stuck: there was no progress. Nothing is lost; run the same command again later "
                "to continue.",
            )
        return DONE if outcome.finished and not outcome.refused else INCOMPLETE


def wants_spark(plan: RedrivePlan) -> bool:
    """Return True if a redrive is faster on Spark: one task reads each queue."""
    return len(plan) > SPARK_THRESHOLD and len(plan.queues) > 1
