"""Spark: what it has to be told, and what it left behind."""

from typing import Annotated

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.session import Session
from esker.errors import InvalidError, Kind


@command(app, "spark-config", panel="Spark")
def spark_config(session: Session) -> None:
    """Print the settings for `spark-defaults.conf` by which Spark finds the server, as the user who asks.

    The user's secret is among them: whoever can read them can do what that user may.

    \b
      esker spark-config >> $SPARK_HOME/conf/spark-defaults.conf
      esker --endpoint http://lake:8000 spark-config > spark-defaults.conf
    """
    from esker.spark import config

    said = session.settings
    if not said.endpoint:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            "which server? Spark asks one: name it by --endpoint http://host:8000, ESKER_ENDPOINT or `esker login`; in "
            "Python, esker.spark.session() starts one by itself",
        )
    if not said.access_key_id:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            "Spark takes an access key: set ESKER_ACCESS_KEY_ID and ESKER_SECRET_ACCESS_KEY, or `esker login` with one",
        )
    told = said.endpoint, said.access_key_id, said.secret_access_key
    session.output.lines(config.settings(*told), config.spark_config(*told).splitlines())


@command(app, "spark-clean", panel="Spark")
def spark_clean(
    session: Session,
    repo: arguments.Repo,
    older_than_s: Annotated[
        float, typer.Option("--older-than", metavar="SECONDS", min=0, help="Without a sign of life for so long.")
    ] = 86_400.0,
) -> None:
    """Abort jobs that gave no sign of life for so long, and forget those that ended as long ago.

    A driver that was killed leaves such a job. It shows nothing on its branch; once it is aborted, what its tasks wrote
    goes with the garbage.

    \b
      esker spark-clean sales
      esker spark-clean sales --older-than 3600
    """
    aborted = session.client.clean_jobs(places.repository(repo), older_than_s)
    session.output.listing(("aborted", "branch"), ((one, (one["id"], one["branch"])) for one in aborted))
    if not aborted:
        session.output.note("nothing to abort")
