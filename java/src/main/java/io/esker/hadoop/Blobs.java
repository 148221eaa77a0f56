package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.channels.FileChannel;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The bytes of a repository's objects, read from and written to where they lie. What is written is uploaded first, to
 * an address of its own, and shown after: no reader ever sees a part of it, or bytes change.
 */
final class Blobs {
  /** As of other clients: "presigned" is for who can reach the store by URLs alone. */
  private static final String ACCESS_MODE = "fs.lakefs.access.mode";

  /** Before a URL expires, for the request that uses it. */
  private static final long SPARE_MS = 60_000;

  private final LakeClient client;
  private final String repository;
  private final Entries entries;
  private final Configuration conf;
  private final boolean isDirect;

  private static final int URLS_MAX = 20_000;

  /** The last of the URLs that were asked for, by ref and key. */
  private final Map<List<String>, Url> urls =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<List<String>, Url> eldest) {
          return size() > URLS_MAX;
        }
      };

  private record Url(URI url, Entry entry, long expiresMs) {
    boolean isOf(Entry other) {
      return entry.size() == other.size() && entry.etag().equals(other.etag());
    }
  }

  Blobs(LakeClient client, String repository, Entries entries, Configuration conf) {
    this.client = client;
    this.repository = repository;
    this.entries = entries;
    this.conf = conf;
    this.isDirect = !conf.get(ACCESS_MODE, "simple").equals("presigned");
  }

  FSDataInputStream open(String ref, Entry entry, Path path, FileSystem.Statistics statistics) throws IOException {
    if (isDirect && Storage.isInHadoop(conf, entry.address())) {
      Path there = Storage.inHadoop(entry.address());
      return there.getFileSystem(conf).open(there);
    }
    Optional<FileChannel> file = Optional.empty();
    if (isDirect) {
      file = Storage.of(client, repository).openFile(entry.address(), entry.size());
    }
    BlobReader blob =
        file.isPresent() ? new LocalReader(file.get()) : new RemoteReader(fresh -> url(ref, entry, fresh));
    return new FSDataInputStream(new LakeInput(blob, path.toString(), entry.size(), statistics));
  }

  /** With {@code ifAbsent}, closing fails if somebody else was first. */
  LakeOutput create(String branch, String key, Path path, boolean ifAbsent) throws IOException {
    Storage storage = Storage.of(client, repository);
    BlobWriter writer;
    if (isDirect && storage.isLocal()) {
      String address = address(branch, key, false).path("physical_address").asText();
      writer = new Linked(new LocalWriter(storage.file(address)), branch, key, address, ifAbsent);
    } else if (isDirect && storage.isInHadoop(conf)) {
      String address = address(branch, key, false).path("physical_address").asText();
      writer = new Linked(new HadoopWriter(Storage.inHadoop(address), conf), branch, key, address, ifAbsent);
    } else {
      mayUpload(branch, key);
      writer = new Sent(branch, key, storage.isOfServer(), ifAbsent);
    }
    return new LakeOutput(writer, path.toString());
  }

  /** Store an empty object, or leave the one that is there. */
  void touch(String branch, String key) throws IOException {
    upload(branch, key, BodyPublishers.noBody(), 0, false);
  }

  /** Told now rather than when all is written. */
  private void mayUpload(String branch, String key) throws IOException {
    client.get("repositories", repository, "branches", branch, "objects", "stage_allowed").query("path", key).send();
  }

  private void upload(String branch, String key, BodyPublisher body, long size, boolean ifAbsent) throws IOException {
    LakeClient.Call call =
        client
            .post("repositories", repository, "branches", branch, "objects")
            .query("path", key)
            .body(body, "application/octet-stream")
            .timeout(Http.patience(size));
    if (ifAbsent) {
      call.header("If-None-Match", "*"); // to do it again would find what it did the first time
    } else {
      call.idempotent();
    }
    try {
      call.send();
    } finally {
      entries.changed(branch, key);
    }
  }

  private JsonNode address(String branch, String key, boolean presign) throws IOException {
    return client
        .get("repositories", repository, "branches", branch, "staging", "backing")
        .query("path", key)
        .query("presign", presign)
        .send();
  }

  /** The URL to read an object by: asked for together with those of the objects that follow it. */
  private URI url(String ref, Entry entry, boolean fresh) throws IOException {
    List<String> name = List.of(ref, entry.key());
    Url known;
    synchronized (urls) {
      known = urls.get(name);
    }
    boolean isGood = known != null && known.expiresMs() - SPARE_MS > System.currentTimeMillis() && known.isOf(entry);
    if (fresh || !isGood) {
      JsonNode listed = entries.signed(ref, entry.key());
      synchronized (urls) {
        listed.path("results").forEach(item -> remember(ref, item));
        known = urls.get(name);
      }
    }
    if (known == null || !known.isOf(entry)) {
      throw new FileNotFoundException(
          entry.key() + " on " + ref + " of " + repository + " has changed since it was opened");
    }
    return known.url();
  }

  private void remember(String ref, JsonNode item) {
    Entry entry = Entry.of(item);
    long expiresMs = item.path("physical_address_expiry").asLong() * 1000;
    urls.put(List.of(ref, entry.key()), new Url(URI.create(entry.address()), entry, expiresMs));
  }

  private void link(String branch, String key, String address, long size, String md5, boolean ifAbsent)
      throws IOException {
    ObjectNode body = LakeClient.JSON.createObjectNode();
    body.putObject("staging").put("physical_address", address);
    body.put("checksum", md5).put("size_bytes", size);
    LakeClient.Call call =
        client
            .put("repositories", repository, "branches", branch, "staging", "backing")
            .query("path", key)
            .body(body)
            .idempotent();
    if (ifAbsent) {
      call.header("If-None-Match", "*");
    }
    try {
      call.send();
    } catch (LakeException error) {
      if (!ifAbsent || error.status() != 412 || !isAt(branch, key, address)) {
        throw error;
      }
    } finally {
      entries.changed(branch, key);
    }
  }

  /** Whether it was this very blob that was there already: the answer to an earlier try was lost, then. */
  private boolean isAt(String branch, String key, String address) throws IOException {
    return client
        .get("repositories", repository, "refs", branch, "objects", "stat")
        .query("path", key)
        .send()
        .path("physical_address")
        .asText()
        .equals(address);
  }

  /** A blob that is written to the store by another, and then shown. */
  private final class Linked implements BlobWriter {
    private final BlobWriter blob;
    private final String branch;
    private final String key;
    private final String address;
    private final boolean ifAbsent;

    Linked(BlobWriter blob, String branch, String key, String address, boolean ifAbsent) {
      this.blob = blob;
      this.branch = branch;
      this.key = key;
      this.address = address;
      this.ifAbsent = ifAbsent;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      blob.write(bytes, offset, length);
    }

    @Override
    public void finish(long size, String md5) throws IOException {
      blob.finish(size, md5);
      link(branch, key, address, size, md5, ifAbsent); // whatever comes of it, the blob stays: it may be shown
    }

    @Override
    public void discard() {
      blob.discard();
    }
  }

  /** A blob that is sent when all of it is known: to the store if that takes it in one piece, else to the server. */
  private final class Sent implements BlobWriter {
    private final Spool spool = new Spool();
    private final String branch;
    private final String key;
    private final boolean isByServer;
    private final boolean ifAbsent;

    Sent(String branch, String key, boolean isByServer, boolean ifAbsent) {
      this.branch = branch;
      this.key = key;
      this.isByServer = isByServer;
      this.ifAbsent = ifAbsent;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      spool.write(bytes, offset, length);
    }

    @Override
    public void finish(long size, String md5) throws IOException {
      try (spool) {
        if (isByServer || size > Storage.PUT_BYTES_MAX) {
          upload(branch, key, spool.body(), size, ifAbsent);
          return;
        }
        JsonNode given = address(branch, key, true);
        HttpRequest request =
            HttpRequest.newBuilder(URI.create(given.path("presigned_url").asText()))
                .PUT(spool.body())
                .timeout(Http.patience(size))
                .build();
        Http.send(request, BodyHandlers.discarding(), true);
        link(branch, key, given.path("physical_address").asText(), size, md5, ifAbsent);
      }
    }

    @Override
    public void discard() {
      spool.discard();
    }
  }
}
