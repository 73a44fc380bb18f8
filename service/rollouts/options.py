"""Shared parts of the commands of `fraud rollouts`: options, the desk, printed answers."""

import getpass
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feature_store.option_groups import takes
from feature_store.printable import printable
from feature_store.secret_options import from_environment, in_client_settings
from models.errors import ModelError

if TYPE_CHECKING:
    from service.rollouts.desk import Desk
    from service.rollouts.requests import Actor, Draft, Receipt

Servers = Annotated[str, typer.Option(envvar="FRAUD_BOOTSTRAP_SERVERS", help="Kafka brokers")]
JobId = Annotated[str, typer.Option(envvar="FRAUD_JOB_ID", help="The job to which the rollouts belong")]
Kafka = Annotated[
    str,
    typer.Option(
        envvar="FRAUD_KAFKA",
        help="More client settings, as a JSON object; passwords only in FRAUD_KAFKA",
        callback=from_environment("FRAUD_KAFKA", in_client_settings),
    ),
]
RolloutId = Annotated[str, typer.Argument(help="Id as in `fraud rollouts show` and in every alert")]
PolicyFile = Annotated[Path | None, typer.Option(help="policy.yaml: thresholds, rules and guards")]
Models = Annotated[list[str], typer.Argument(help="NAME/VERSION; all but the first get the role shadow")]
PolicyFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy", help="policy.yaml: thresholds, rules and guards; one for all models, or one each"
    ),
]
Challenger = Annotated[str, typer.Option(help="Default: the only challenger, or the one with role canary")]
Reason = Annotated[str, typer.Option(help="Reason, stored in the event")]
KeyOption = Annotated[str, typer.Option("--key", help="Idempotency key; default: a new one")]
At = Annotated[int | None, typer.Option("--at", help="seq that the rollout must have; default: any")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object")]
DEFAULT_MAX_COUNT_5M = 6


@dataclass(frozen=True)
class Connection:
    """The brokers, and the job to which the rollouts belong."""

    bootstrap_servers: Servers
    job_id: JobId = "card-fraud"
    kafka: Kafka = field(default="{}", repr=False)  # it may have passwords

    def desk(self, tracking_uri: str = "") -> "Desk":
        """Create the desk of a command."""
        from service.rollouts.desk import Desk
        from service.settings import ServiceSettings
        from streaming_job import environment

        settings = environment.settings(
            ServiceSettings,
            bootstrap_servers=self.bootstrap_servers,
            job_id=self.job_id,
            kafka=environment.client_settings(self.kafka),
            mlflow_tracking_uri=tracking_uri,
        )
        return Desk(settings)


@dataclass(frozen=True)
class SimplePolicy:
    """A policy that options give instead of a file."""

    threshold: Annotated[float | None, typer.Option(help="Instead of --policy: least score of an alert")] = (
        None
    )
    max_count_5m: Annotated[
        int | None,
        typer.Option(
            help="Instead of --policy: maximum of a card's transactions in 5 min; more raise an alert"
        ),
    ] = None
    missing_profile: Annotated[
        str | None, typer.Option(help="Instead of --policy: score or review, for cards without a profile")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any of the options is given."""
        return self != SimplePolicy()


takes_connection = takes("connection", Connection)
takes_simple_policy = takes("simple_policy", SimplePolicy)


def actor() -> "Actor":
    """Return the user of the operating system, as admin.

    A lower role could not be enforced: Kafka's credentials are enough to write to the topic directly.
    """
    from service.rollouts.requests import Actor

    return Actor(getpass.getuser(), origin=socket.gethostname())


def key_of(given: str) -> str:
    """Return the given idempotency key of a command, or a new one."""
    import uuid

    return given or uuid.uuid4().hex


def draft_of(
    model: str, policy_file: Path | None, simple_policy: SimplePolicy, role: str, share_bp: int
) -> tuple["Draft", Mapping[str, Any] | None]:
    """Create a challenger's draft; return it with the guards of its policy file.

    Raises:
        ModelError: neither a policy file nor a threshold is given, a file is given together with options of a
            policy, or these give an invalid policy.
    """
    from models.parameters import SCORE
    from models.policy import Policy
    from models.rollouts import policy_file as files
    from service.rollouts.requests import Draft

    guards: Mapping[str, Any] | None = None
    if policy_file is not None:
        if simple_policy.is_given:
            raise ModelError("give --policy without --threshold, --max-count-5m and --missing-profile")
        policy, guards, _ = files.load(policy_file)
    elif simple_policy.threshold is None:
        raise ModelError("give --policy policy.yaml, or --threshold")
    else:
        most = simple_policy.max_count_5m
        policy = Policy(
            simple_policy.threshold,
            DEFAULT_MAX_COUNT_5M if most is None else most,
            simple_policy.missing_profile or SCORE,
        )
    name = model.rpartition("/")[2]
    return Draft(f"v{name}", role, share_bp, model, policy), guards


def drafts_of(
    models: Sequence[str],
    policy_files: Sequence[Path],
    simple_policy: SimplePolicy,
    role: str,
    share_bp: int,
) -> tuple[tuple["Draft", ...], Mapping[str, Any] | None]:
    """Create the drafts of one rollout's challengers; return them with the guards of the policy files.

    Args:
        models: NAME/VERSION of each.
        policy_files: none, one for all models, or one for each.
        simple_policy: instead of a file.
        role: role of the first; the others are shadows.
        share_bp: share of the cards that each decides as a canary, basis points; a shadow that becomes the
            canary later gets it, too, unless that step names another share.

    Raises:
        ModelError: the number of files does not fit, two files have different guards, or a draft is refused
            (`draft_of`).
    """
    if len(policy_files) not in (0, 1, len(models)):
        raise ModelError(
            f"{len(policy_files)} policy files for {len(models)} models; give one, or one for each model"
        )
    guards: Mapping[str, Any] | None = None
    drafts: list[Draft] = []
    for number, model in enumerate(models):
        path = policy_files[min(number, len(policy_files) - 1)] if policy_files else None
        draft, own = draft_of(model, path, simple_policy, "shadow" if number else role, share_bp)
        if guards is not None and own is not None and own != guards:
            raise ModelError(f"{path} has other guards than the files before it; a rollout has one set")
        guards = guards if own is None else own
        same = sum(before.name.partition("-")[0] == draft.name for before in drafts)
        drafts.append(replace(draft, name=f"{draft.name}-{same + 1}") if same else draft)
    return tuple(drafts), guards


def say(text: str) -> None:
    """Print a line whose parts other people wrote, such as reasons and names."""
    typer.echo(printable(text))


def print_receipt(receipt: "Receipt", as_json: bool) -> None:
    """Print the desk's receipt."""
    if as_json:
        typer.echo(json.dumps(asdict(receipt)))
        return
    done = ", ".join(receipt.types)
    repetition = " (had been written before)" if receipt.repeated else ""
    say(f"{receipt.rollout_id}: {done}, now {receipt.phase}, seq {receipt.seq}{repetition}")
