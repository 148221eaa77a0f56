package io.esker.spark;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.metric.SQLMetric;
import scala.Option;

/**
 * What the running query says that it writes. Spark tells a committer nothing of its mode: it looks at the destination
 * before the job begins, and deletes what it saw. What others publish after that look is for the job to decide, too.
 */
final class WritePlan {
  /** Operators that give a row for each row that they take, and count none themselves. */
  private static final Set<String> ROW_BY_ROW =
      Set.of(
          "DataWritingCommandExec", "WriteFilesExec", "WholeStageCodegenExec", "InputAdapter", "ProjectExec", "SortExec",
          "ColumnarToRowExec", "AQEShuffleReadExec", "ShuffleExchangeExec", "CoalesceExec");

  static final String ROWS = "spark.rows";

  private static final int QUERY_CHARS_MAX = 1000;

  private final QueryExecution query;
  private final Optional<InsertIntoHadoopFsRelationCommand> command;

  private WritePlan(QueryExecution query, Optional<InsertIntoHadoopFsRelationCommand> command) {
    this.query = query;
    this.command = command;
  }

  /** Of the query that this thread runs, as far as it writes to the path. */
  static WritePlan running(SparkContext context, String path) {
    String id = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    QueryExecution query = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    return new WritePlan(query, query == null ? Optional.empty() : find(query.analyzed(), new Path(path)));
  }

  /** Everything under the path is to go, whatever it is by then. */
  boolean replacesAll() {
    return mode() == SaveMode.Overwrite
        && !command.get().dynamicPartitionOverwrite()
        && command.get().staticPartitions().isEmpty();
  }

  /** There is to be nothing under the path. */
  boolean expectsEmpty() {
    return mode() == SaveMode.ErrorIfExists || mode() == SaveMode.Ignore;
  }

  /** If there is something, nothing is to be done. */
  boolean yields() {
    return mode() == SaveMode.Ignore;
  }

  /** What it was, and how many rows it wrote, as far as that is known. To be asked when it has run. */
  Map<String, String> lineage() {
    Map<String, String> found = new LinkedHashMap<>();
    if (query != null) {
      Option<String> text = query.analyzed().origin().sqlText();
      if (text.isDefined()) {
        found.put("spark.query", text.get().substring(0, Math.min(text.get().length(), QUERY_CHARS_MAX)));
      }
      OptionalLong rows = rows(query.executedPlan());
      if (rows.isPresent()) {
        found.put(ROWS, Long.toString(rows.getAsLong()));
      }
    }
    return found;
  }

  private static OptionalLong rows(SparkPlan plan) {
    Option<SQLMetric> counted = plan.metrics().get("numOutputRows");
    if (plan instanceof AdaptiveSparkPlanExec) {
      return rows(((AdaptiveSparkPlanExec) plan).executedPlan());
    }
    if (plan instanceof QueryStageExec) {
      return rows(((QueryStageExec) plan).plan());
    }
    if (ROW_BY_ROW.contains(plan.getClass().getSimpleName()) && plan.children().size() == 1) {
      return rows(plan.children().head());
    }
    return counted.isDefined() ? OptionalLong.of((Long) counted.get().value()) : OptionalLong.empty();
  }

  private SaveMode mode() {
    return command.map(InsertIntoHadoopFsRelationCommand::mode).orElse(null);
  }

  private static Optional<InsertIntoHadoopFsRelationCommand> find(LogicalPlan plan, Path path) {
    if (plan instanceof InsertIntoHadoopFsRelationCommand) {
      InsertIntoHadoopFsRelationCommand found = (InsertIntoHadoopFsRelationCommand) plan;
      return found.outputPath().equals(path) ? Optional.of(found) : Optional.empty();
    }
    scala.collection.Iterator<?> children = plan.children().iterator();
    while (children.hasNext()) {
      Optional<InsertIntoHadoopFsRelationCommand> found = find((LogicalPlan) children.next(), path);
      if (found.isPresent()) {
        return found;
      }
    }
    return Optional.empty();
  }
}
