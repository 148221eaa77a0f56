package io.esker.spark;

import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.BoxedUnit;

/** Sets what a session needs for lakefs:, where Spark finds this by itself. What a user set stays as it is. */
public final class LakeExtensions implements SparkSessionExtensionsProvider {
  private static final Map<String, String> SETTINGS =
      Map.of(
          "spark.sql.sources.commitProtocolClass", LakeCommitProtocol.class.getName(),
          "spark.sql.sources.useListFilesFileSystemList", "s3a,lakefs");

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    // There is no hook for settings. Check rules are made before the first query is planned; ours checks nothing.
    extensions.injectCheckRule(
        session -> {
          prepare(session);
          return plan -> BoxedUnit.UNIT;
        });
    return BoxedUnit.UNIT;
  }

  /** Sets them in this session. */
  public static void prepare(SparkSession session) {
    SETTINGS.forEach(
        (name, value) -> {
          if (!session.conf().getAll().contains(name)) {
            session.conf().set(name, value);
          }
        });
  }
}
