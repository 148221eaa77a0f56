package io.esker.hadoop;

import org.apache.hadoop.fs.Path;

/**
 * A managed table that Spark is about to replace: {@code saveAsTable} with mode overwrite drops it, files and all, and
 * then writes it anew. Here the files stay until the job that writes the new ones is committed, which deletes them in
 * the same commit; until then only Spark, while it replaces the table, is told that they are gone.
 */
public final class ReplacedTable {
  private static final StackWalker STACK = StackWalker.getInstance();

  /** Of this thread: all of it happens in one call. */
  private static final ThreadLocal<Path> REPLACED = new ThreadLocal<>();

  private ReplacedTable() {}

  /** Whether to delete this directory is but the first half of replacing a table. */
  static boolean defers(Path directory) {
    if (!isReplacing()) {
      return false;
    }
    REPLACED.set(directory);
    return true;
  }

  static boolean hides(Path path) {
    Path replaced = REPLACED.get();
    if (replaced == null) {
      return false;
    }
    if (!isReplacing()) {
      REPLACED.remove();
      return false;
    }
    return path.equals(replaced) || path.toString().startsWith(replaced + "/");
  }

  /** To be told when what this thread wrote is there. */
  public static void written() {
    REPLACED.remove();
  }

  private static boolean isReplacing() {
    return STACK.walk(
        frames ->
            frames.anyMatch(
                frame ->
                    frame.getMethodName().equals("saveAsTable")
                        && frame.getClassName().startsWith("org.apache.spark.sql.")
                        && frame.getClassName().endsWith(".DataFrameWriter")));
  }
}
