"""The Spark that a benchmark runs on."""

from __future__ import annotations


def spark_settings(scale: str, memory: str, slots: int = 2) -> dict[str, str]:
    """Settings for a project; at tiny, where no figure counts, Java compiles quickly rather than well."""
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"} if scale == "tiny" else {}
    return {"spark.master": f"local[{slots}]", "spark.driver.memory": memory, **quick}
