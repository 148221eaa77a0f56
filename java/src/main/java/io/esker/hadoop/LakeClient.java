package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;

/** Talks to one server as one user: JSON in, JSON out. What is tried again, and what never is, {@link Http} says. */
public final class LakeClient {
  public static final ObjectMapper JSON = new ObjectMapper();

  public static final String ENDPOINT = "fs.lakefs.endpoint";
  public static final String ACCESS_KEY = "fs.lakefs.access.key";
  public static final String SECRET_KEY = "fs.lakefs.secret.key";

  private static final String API = "/api/v1";

  private static final Map<String, LakeClient> CLIENTS = new ConcurrentHashMap<>();

  private final String endpoint;
  private final String authorization;

  private LakeClient(String endpoint, String accessKey, String secretKey) {
    this.endpoint = endpoint;
    byte[] login = (accessKey + ":" + secretKey).getBytes(StandardCharsets.UTF_8);
    this.authorization = "Basic " + Base64.getEncoder().encodeToString(login);
  }

  /** The client for the server and the user that the configuration names: one for all who name the same. */
  public static LakeClient of(Configuration conf) throws IOException {
    String endpoint = setting(conf, ENDPOINT).replaceAll("/+$", "").replaceAll(API + "$", "");
    if (!endpoint.startsWith("http://") && !endpoint.startsWith("https://")) {
      throw new IOException(ENDPOINT + " is the URL of a server, like http://host:8000, not '" + endpoint + "'");
    }
    String accessKey = setting(conf, ACCESS_KEY);
    String secretKey = setting(conf, SECRET_KEY);
    String name = String.join("\n", endpoint, accessKey, secretKey);
    return CLIENTS.computeIfAbsent(name, key -> new LakeClient(endpoint, accessKey, secretKey));
  }

  /** The server's URL, without the path of the API. */
  public String endpoint() {
    return endpoint;
  }

  public Call get(String... path) {
    return new Call("GET", path).idempotent();
  }

  public Call post(String... path) {
    return new Call("POST", path);
  }

  public Call put(String... path) {
    return new Call("PUT", path);
  }

  public Call delete(String... path) {
    return new Call("DELETE", path);
  }

  /** One call of the API, at a path whose parts are quoted: {@code get("repositories", repo, "jobs", id).send()}. */
  public final class Call {
    private final String method;
    private final StringBuilder target = new StringBuilder(endpoint).append(API);
    private final List<String> headers = new ArrayList<>();
    private char separator = '?';
    private BodyPublisher body = BodyPublishers.noBody();
    private boolean idempotent;
    private Duration timeout = Http.ANSWER_TIMEOUT;

    private Call(String method, String... path) {
      this.method = method;
      for (String part : path) {
        target.append('/').append(quoted(part));
      }
      header("Authorization", authorization).header("X-Lakefs-Client", "esker-hadoop");
    }

    public Call query(String name, Object value) {
      target.append(separator).append(name).append('=').append(quoted(String.valueOf(value)));
      separator = '&';
      return this;
    }

    /** A value that Jackson can write, or bytes that are JSON already. */
    public Call body(Object value) throws IOException {
      body = BodyPublishers.ofByteArray(value instanceof byte[] ? (byte[]) value : JSON.writeValueAsBytes(value));
      return header("Content-Type", "application/json");
    }

    Call body(BodyPublisher sent, String type) {
      body = sent;
      return header("Content-Type", type);
    }

    public Call header(String name, String value) {
      headers.add(name);
      headers.add(value);
      return this;
    }

    /** Doing it twice is the same as once: so it may be tried again when nobody knows whether it was done. */
    public Call idempotent() {
      idempotent = true;
      return this;
    }

    /** How long to wait for the answer to begin. */
    public Call timeout(Duration limit) {
      timeout = limit;
      return this;
    }

    /** The answer's JSON, a missing node if it has none. LakeException if the server says no. */
    public JsonNode send() throws IOException {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(target.toString()))
              .method(method, body)
              .timeout(timeout)
              .headers(headers.toArray(new String[0]))
              .build();
      byte[] answer = Http.send(request, BodyHandlers.ofByteArray(), idempotent).body();
      return answer.length == 0 ? MissingNode.getInstance() : JSON.readTree(answer);
    }
  }

  private static String setting(Configuration conf, String name) throws IOException {
    char[] found = conf.getPassword(name);
    if (found == null || found.length == 0) {
      throw new IOException(
          "the setting " + name + " is missing: give it to Spark as spark.hadoop." + name
              + ", or use esker.spark.session()");
    }
    return new String(found).trim();
  }

  private static String quoted(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }
}
