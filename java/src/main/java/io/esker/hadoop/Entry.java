package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;

/** An object as the server tells of it. */
record Entry(String key, String address, long size, long mtimeMs, String etag) {

  static Entry of(JsonNode stats) {
    return new Entry(
        stats.get("path").asText(),
        stats.path("physical_address").asText(),
        stats.path("size_bytes").asLong(),
        stats.path("mtime").asLong() * 1000,
        stats.path("checksum").asText());
  }
}
