package io.esker.spark;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;

/** Where a commit comes from, as its metadata tells. */
final class Lineage {
  private static final int DESCRIPTION_CHARS_MAX = 1000;

  private Lineage() {}

  /** Of a job of Hadoop's, whether Spark runs it or is not even here. */
  static Map<String, String> of(JobContext job) throws IOException {
    boolean hasSpark = job.getConfiguration().getClassByNameOrNull("org.apache.spark.SparkContext") != null;
    if (hasSpark && SparkContext$.MODULE$.getActive().isDefined()) {
      return of(SparkContext$.MODULE$.getActive().get());
    }
    Map<String, String> found = new LinkedHashMap<>();
    found.put("hadoop.job.id", String.valueOf(job.getJobID()));
    found.put("hadoop.job.name", job.getJobName());
    found.put("hadoop.user", UserGroupInformation.getCurrentUser().getShortUserName());
    return found;
  }

  static Map<String, String> of(SparkContext context) {
    Map<String, String> found = new LinkedHashMap<>();
    found.put("spark.app.id", context.applicationId());
    found.put("spark.app.name", context.appName());
    found.put("spark.user", context.sparkUser());
    found.put("spark.version", context.version());
    String description = context.getLocalProperty("spark.job.description");
    if (description != null && !description.isBlank()) {
      String shown = description.strip();
      found.put("spark.description", shown.substring(0, Math.min(shown.length(), DESCRIPTION_CHARS_MAX)));
    }
    return found;
  }
}
