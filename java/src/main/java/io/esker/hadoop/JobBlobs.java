package io.esker.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/** How the blobs of a job get to the store from a process that does not see it as files. */
public final class JobBlobs {
  /** As of other clients: "presigned" has all bytes go by URLs that the server signs. */
  private static final String ACCESS_MODE = "fs.lakefs.access.mode";

  private JobBlobs() {}

  /** Whether the store is left alone, though it may be in reach. */
  public static boolean goByServer(Configuration conf) {
    return conf.get(ACCESS_MODE, "simple").equals("presigned");
  }

  /** Whether a blob of this size may be sent to the store that its address is in by one request; else, to the server. */
  public static boolean takesUploads(String address, long size) {
    return address.startsWith(Storage.S3) && size <= Storage.PUT_BYTES_MAX;
  }

  /** Upload to a signed URL whose name nobody else uses. That something is there already is an earlier try, then. */
  public static void upload(URI target, BodyPublisher body) throws IOException {
    HttpRequest request =
        HttpRequest.newBuilder(target).PUT(body).timeout(Http.patience(body.contentLength())).build();
    try {
      Http.send(request, BodyHandlers.discarding(), true);
    } catch (LakeException refused) {
      if (!refused.kind().equals("object-exists")) {
        throw refused.asHadoop();
      }
    }
  }

  /** Through Hadoop's own file system for the store, if there is one. */
  public static Optional<BlobWriter> inHadoop(String address, Configuration conf) throws IOException {
    return !goByServer(conf) && Storage.isInHadoop(conf, address)
        ? Optional.of(new HadoopWriter(Storage.inHadoop(address), conf))
        : Optional.empty();
  }
}
