package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.BulkDeleteUtils;
import org.apache.hadoop.fs.Path;

/** Deletes files, a thousand with one call. What is a directory, or not there, it passes over. */
final class LakeBulkDelete implements BulkDelete {
  private final LakeClient client;
  private final Entries entries;
  private final Path base;

  LakeBulkDelete(LakeClient client, Entries entries, Path base) {
    this.client = client;
    this.entries = entries;
    this.base = base;
  }

  @Override
  public int pageSize() {
    return Entries.PAGE_MAX;
  }

  @Override
  public Path basePath() {
    return base;
  }

  @Override
  public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> paths) throws IOException {
    BulkDeleteUtils.validateBulkDeletePaths(paths, pageSize(), base);
    LakePath where = LakePath.of(base).forBranch();
    List<String> keys = paths.stream().map(path -> LakePath.of(path).key()).toList();
    if (keys.isEmpty()) {
      return List.of();
    }
    List<Map.Entry<Path, String>> failed = new ArrayList<>();
    try {
      JsonNode answer =
          client
              .post("repositories", where.repository(), "branches", where.ref(), "objects", "delete")
              .body(Map.of("paths", keys))
              .idempotent()
              .send();
      for (JsonNode error : answer.path("errors")) {
        failed.add(Map.entry(where.at(error.path("path").asText()), error.path("message").asText()));
      }
    } catch (LakeException error) {
      throw error.asHadoop();
    } finally {
      entries.changed(where.ref());
    }
    return failed;
  }

  @Override
  public void close() {}
}
