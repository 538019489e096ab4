"""Physical plans over leaves of one partition, without exchanges.

Spark does not see that rows of a union, of which a part is joined, are few, and puts them through a shuffle of one partition before it
groups, joins or numbers them. What shuffles into one partition can as well be read by the task that goes on: one partition
after the other. A plan without an exchange can be kept, and is one stage.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession


def without_exchanges(plan: JavaObject, session: SparkSession) -> JavaObject:
    """The same plan, whose exchanges into one partition are taken out; others stay."""
    jvm: Any = session._jvm
    children = plan.children()
    old = [children.apply(place) for place in range(children.size())]
    new = [without_exchanges(each, session) for each in old]
    if plan.getClass().getSimpleName() == "ShuffleExchangeExec" and plan.outputPartitioning().numPartitions() == 1:
        return jvm.org.apache.spark.sql.execution.CoalesceExec(1, new[0])
    if all(one is another for one, another in zip(old, new, strict=True)):
        return plan
    return plan.withNewChildren(jvm.PythonUtils.toSeq(new))
