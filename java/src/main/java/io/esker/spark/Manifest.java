package io.esker.spark;

import com.fasterxml.jackson.annotation.JsonAutoDetect;
import com.fasterxml.jackson.annotation.JsonProperty;
import io.esker.hadoop.LakeClient;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

/**
 * What one attempt of a task wrote. It travels as bytes, which every serializer that a user may have chosen can carry.
 */
@JsonAutoDetect(fieldVisibility = JsonAutoDetect.Visibility.ANY)
final class Manifest {
  final List<Entry> entries = new ArrayList<>();

  /** Directories that the job replaces if it replaces those that it writes to. */
  final TreeSet<String> directories = new TreeSet<>();

  /** A file: its path on the branch, and where its bytes are; by the names that the server knows. */
  @JsonAutoDetect(fieldVisibility = JsonAutoDetect.Visibility.ANY)
  static final class Entry {
    @JsonProperty final String path;
    @JsonProperty final String address;
    @JsonProperty final long size;
    @JsonProperty final String checksum;
    @JsonProperty("mtime_ms") final long mtimeMs;

    Entry(
        @JsonProperty("path") String path,
        @JsonProperty("address") String address,
        @JsonProperty("size") long size,
        @JsonProperty("checksum") String checksum,
        @JsonProperty("mtime_ms") long mtimeMs) {
      this.path = path;
      this.address = address;
      this.size = size;
      this.checksum = checksum;
      this.mtimeMs = mtimeMs;
    }
  }

  byte[] bytes() {
    try {
      return LakeClient.JSON.writeValueAsBytes(this);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static Manifest of(byte[] bytes) throws IOException {
    return LakeClient.JSON.readValue(bytes, Manifest.class);
  }
}
