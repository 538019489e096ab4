package headgate;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.UnionRDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * The half of kept_plans.py that runs in Spark's driver: rows by name, plans by number. Python would need some fifty calls for
 * a query, and as many to let the objects go that they give; this needs one for new rows and one for all queries of a job.
 * Compiled by the compiler that Spark has for its own generated code, which knows no lambdas and no type arguments.
 */
public class KeptPlans {
    private static class Kept {
        SparkPlan plan;
        Dataset frame;
        ArrayList leaves = new ArrayList();
        ArrayList places = new ArrayList();
    }

    private SparkSession session;
    private SparkContext context;
    private scala.reflect.ClassTag any = scala.reflect.ClassTag$.MODULE$.AnyRef();
    private scala.collection.immutable.Seq unsorted = PythonUtils.toSeq(new ArrayList());
    private RDD separator;
    private ConcurrentHashMap plans = new ConcurrentHashMap();
    private ConcurrentHashMap rows = new ConcurrentHashMap();
    private ConcurrentHashMap types = new ConcurrentHashMap();

    /** Plans take their settings from the session; what a job gives for one query is divided from the next by the separator. */
    public void begin(SparkSession session, byte[] separator) {
        this.session = session;
        this.context = session.sparkContext();
        ArrayList one = new ArrayList();
        one.add(separator);
        this.separator = context.parallelize(PythonUtils.toSeq(one), 1, any);
    }

    /** Keeps a plan; `places` has for each RDD of its leaves its id and the place of its rows among those of a query. */
    public void keep(int number, SparkPlan plan, Dataset frame, String places) {
        HashMap known = new HashMap();
        String[] words = places.split(" ");
        for (int at = 0; at < words.length; at += 2) {
            known.put(Integer.valueOf(words[at]), Integer.valueOf(words[at + 1]));
        }
        Kept kept = new Kept();
        kept.plan = plan;
        kept.frame = frame;
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof RDDScanExec) {
                kept.leaves.add(leaf);
                kept.places.add(known.get(Integer.valueOf(((RDDScanExec) leaf).rdd().id())));
            }
        }
        plans.put(Integer.valueOf(number), kept);
    }

    public void forgetPlan(int number) {
        plans.remove(Integer.valueOf(number));
    }

    /** Takes rows, one Arrow record batch, under a name. */
    public void enter(String name, byte[] batch, String schema) {
        SparkSession.setActiveSession(session);
        StructType type = (StructType) types.get(schema);
        if (type == null) {
            type = (StructType) DataType.fromJson(schema);
            types.put(schema, type);
        }
        scala.collection.Iterator batches = scala.collection.Iterator$.MODULE$.single(batch);
        scala.collection.Iterator found =
            ArrowConverters$.MODULE$.fromBatchIterator(batches, type, "UTC", true, false, (TaskContext) null);
        UnsafeProjection projection = UnsafeProjection.create(type);
        ArrayList copies = new ArrayList();
        while (found.hasNext()) {
            copies.add(projection.apply((InternalRow) found.next()).copy());
        }
        rows.put(name, context.parallelize(PythonUtils.toSeq(copies), 1, any));
    }

    public void forget(String names) {
        String[] words = names.split(" ");
        for (int at = 0; at < words.length; at++) {
            rows.remove(words[at]);
        }
    }

    /**
     * Runs queries by one task and gives where their rows can be fetched. A query is the number of its plan and the names of its rows;
     * a bar divides it from the next.
     */
    public String collect(String queries) {
        SparkSession.setActiveSession(session);
        String[] each = queries.split("\\|");
        ArrayList found = new ArrayList();
        for (int at = 0; at < each.length; at++) {
            if (at > 0) {
                found.add(separator);
            }
            found.add(batches(each[at].split(" ")));
        }
        RDD together = (RDD) found.get(0);
        if (found.size() > 1) {
            RDD union = new UnionRDD(context, PythonUtils.toSeq(found), any);
            together = union.coalesce(1, false, scala.Option.empty(), null);
        }
        Object[] place = PythonRDD.collectAndServe(together);
        return place[1] == null ? place[0].toString() : place[0] + " " + place[1];
    }

    /** Arrow batches of a query: its plan with the rows of the day in its leaves. */
    private RDD batches(String[] query) {
        Kept kept = (Kept) plans.get(Integer.valueOf(query[0]));
        if (kept == null) {
            throw new IllegalStateException("the plan was forgotten");
        }
        HashMap leaves = new HashMap();
        for (int at = 0; at < kept.leaves.size(); at++) {
            RDDScanExec leaf = (RDDScanExec) kept.leaves.get(at);
            RDD entered = (RDD) rows.get(query[1 + ((Integer) kept.places.get(at)).intValue()]);
            if (entered == null) {
                throw new IllegalStateException("the rows were forgotten");
            }
            leaves.put(
                leaf,
                new RDDScanExec(leaf.output(), entered, "rows", SinglePartition$.MODULE$, unsorted, scala.Option.empty()));
        }
        SparkPlan plan = (SparkPlan) kept.plan.transformUp(PythonUtils.toScalaMap(leaves));
        return kept.frame.toArrowBatchRdd(plan);
    }
}
