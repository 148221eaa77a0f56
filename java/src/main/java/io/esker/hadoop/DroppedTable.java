package io.esker.hadoop;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/** What SQL drops of tables is gone in one commit, as what it writes is there in one. Who else deletes, stages that. */
final class DroppedTable {
  private static final String COMMAND = "org.apache.spark.sql.execution.command.";
  private static final String V2 = "org.apache.spark.sql.execution.datasources.v2.";

  private static final Set<String> COMMANDS =
      Set.of(
          COMMAND + "DropTableCommand",
          V2 + "DropTableExec",
          COMMAND + "TruncateTableCommand",
          COMMAND + "AlterTableDropPartitionCommand",
          COMMAND + "DropDatabaseCommand",
          V2 + "DropNamespaceExec");

  private static final StackWalker STACK = StackWalker.getInstance();

  private DroppedTable() {}

  /** Whether to delete a directory is a part of such a command. */
  static boolean isDropping() {
    return STACK.walk(frames -> frames.map(StackWalker.StackFrame::getClassName).anyMatch(COMMANDS::contains));
  }

  /** Delete all that is inside, in a commit. False if the branch has uncommitted changes, which have to come first. */
  static boolean commit(LakeClient client, LakePath directory) throws IOException {
    String id = UUID.randomUUID().toString();
    try {
      client
          .post("repositories", directory.repository(), "branches", directory.ref(), "jobs")
          .body(Map.of("id", id))
          .idempotent()
          .send();
      client
          .post("repositories", directory.repository(), "jobs", id, "publish")
          .body(
              Map.of(
                  "entries", List.of(),
                  "deletes", List.of(directory.inside()),
                  "message", "Spark: drop " + directory.key()))
          .idempotent()
          .send();
      return true;
    } catch (LakeException refused) {
      if (refused.kind().equals("dirty-branch")) {
        return false;
      }
      throw refused;
    }
  }
}
