package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;

/**
 * What a repository's refs show, and what of it is remembered, so that whoever goes through many files in order asks
 * once for a thousand of them.
 *
 * <p>Of commits and tags, which do not change, what was seen is remembered until it is pushed out. Of branches, only as
 * long as nobody minds: what others write is seen that much later, what this process writes at once. That something is
 * absent is never remembered.
 */
public final class Entries {
  static final int PAGE_MAX = 1000;

  private static final int REMEMBERED_MAX = 100_000;

  private static final long BRANCH_AGE_NANOS = Duration.ofSeconds(2).toNanos();

  /** A commit, and steps back from it. */
  private static final Pattern COMMIT = Pattern.compile("[0-9a-f]{64}([~^][0-9]*)*");

  private static final Map<List<Object>, Entries> ALL = new ConcurrentHashMap<>();

  private final LakeClient client;
  private final String repository;
  private final Map<Name, Seen> remembered;

  /** When this process last wrote to a branch: an answer to what was asked before is not to be remembered. */
  private final Map<String, Long> wroteNanos = new HashMap<>();

  private final Map<String, Boolean> stable = new ConcurrentHashMap<>();

  private record Name(String ref, String key) {}

  private record Seen(Entry entry, long askedNanos) {}

  /** What is at a path. A file and a directory may have the same. */
  record Found(Optional<Entry> file, boolean isDirectory) {
    boolean isNothing() {
      return file.isEmpty() && !isDirectory;
    }
  }

  private Entries(LakeClient client, String repository) {
    this.client = client;
    this.repository = repository;
    this.remembered =
        new LinkedHashMap<>(16, 0.75f, true) {
          private static final long serialVersionUID = 1L;

          @Override
          protected boolean removeEldestEntry(Map.Entry<Name, Seen> eldest) {
            return size() > REMEMBERED_MAX;
          }
        };
  }

  /** Of the process: one for all who see a repository as the same user. */
  public static Entries of(LakeClient client, String repository) {
    return ALL.computeIfAbsent(List.of(client, repository), key -> new Entries(client, repository));
  }

  /** To be told of every change of a branch, once it is done: nothing seen before is remembered. */
  public synchronized void changed(String branch) {
    wroteNanos.put(branch, System.nanoTime());
    remembered.keySet().removeIf(name -> name.ref().equals(branch));
  }

  /** The same, where only one key has changed. */
  synchronized void changed(String branch, String key) {
    wroteNanos.put(branch, System.nanoTime());
    remembered.remove(new Name(branch, key));
  }

  Found find(String ref, String key) throws IOException {
    Optional<Entry> known = recall(ref, key);
    if (known.isPresent()) {
      return new Found(known, false);
    }
    if (key.isEmpty()) {
      page(ref, "", "", "", 1);
      return new Found(Optional.empty(), true);
    }
    String inside = key + "/";
    Page page = page(ref, "", justBefore(key), "", PAGE_MAX);
    Optional<Entry> file = page.objects().stream().findFirst().filter(first -> first.key().equals(key));
    boolean isDirectory = false;
    boolean isPast = !page.hasMore();
    for (Entry entry : page.objects()) {
      isDirectory = isDirectory || entry.key().startsWith(inside);
      isPast = isPast || !entry.key().startsWith(key);
    }
    if (file.isEmpty() && !isDirectory && !isPast) {
      isDirectory = !page(ref, inside, "", "", 1).objects().isEmpty();
    }
    return new Found(file, isDirectory);
  }

  /** Of at most a thousand items behind {@code after} that begin with {@code prefix}. */
  Page page(String ref, String prefix, String after, String delimiter, int amount) throws IOException {
    long askedNanos = System.nanoTime();
    JsonNode answer = list(ref, prefix, after, delimiter, amount, false);
    List<Entry> objects = new ArrayList<>();
    List<String> prefixes = new ArrayList<>();
    for (JsonNode item : answer.path("results")) {
      if (item.path("path_type").asText().equals("object")) {
        objects.add(Entry.of(item));
      } else {
        prefixes.add(item.path("path").asText());
      }
    }
    remember(ref, objects, askedNanos);
    JsonNode pagination = answer.path("pagination");
    String next = pagination.path("has_more").asBoolean() ? pagination.path("next_offset").asText() : null;
    return new Page(objects, prefixes, next);
  }

  /** The same, flat, from a key on; addresses are URLs by which anybody can read, for a while. */
  JsonNode signed(String ref, String key) throws IOException {
    return list(ref, "", justBefore(key), "", PAGE_MAX, true);
  }

  private JsonNode list(String ref, String prefix, String after, String delimiter, int amount, boolean presign)
      throws IOException {
    return client
        .get("repositories", repository, "refs", ref, "objects", "ls")
        .query("prefix", prefix)
        .query("after", after)
        .query("delimiter", delimiter)
        .query("amount", amount)
        .query("presign", presign)
        .query("user_metadata", false)
        .send();
  }

  /** The entry of this size and time, if it was seen, however long ago: whoever asks knows that it is the right one. */
  synchronized Optional<Entry> seen(String ref, String key, long size, long mtimeMs) {
    Seen seen = remembered.get(new Name(ref, key));
    return Optional.ofNullable(seen).map(Seen::entry).filter(is -> is.size() == size && is.mtimeMs() == mtimeMs);
  }

  private Optional<Entry> recall(String ref, String key) throws IOException {
    Seen seen;
    synchronized (this) {
      seen = remembered.get(new Name(ref, key));
    }
    if (seen == null || System.nanoTime() - seen.askedNanos() > BRANCH_AGE_NANOS && !isStable(ref)) {
      return Optional.empty();
    }
    return Optional.of(seen.entry());
  }

  private synchronized void remember(String ref, List<Entry> entries, long askedNanos) {
    Long wrote = wroteNanos.get(ref);
    if (wrote != null && wrote - askedNanos >= 0) {
      return;
    }
    for (Entry entry : entries) {
      remembered.put(new Name(ref, entry.key()), new Seen(entry, askedNanos));
    }
  }

  /** Whether the ref always shows the same: it is no branch, nor goes back from one. */
  private boolean isStable(String ref) throws IOException {
    if (COMMIT.matcher(ref).matches()) {
      return true;
    }
    Boolean known = stable.get(ref);
    if (known == null) {
      known = !isBranch(ref.split("[~^@$]", 2)[0]);
      stable.put(ref, known);
    }
    return known;
  }

  private boolean isBranch(String name) throws IOException {
    try {
      client.get("repositories", repository, "branches", name).send();
      return true;
    } catch (LakeException error) {
      if (error.status() == 404) {
        return false;
      }
      throw error;
    }
  }

  /** A text that comes before {@code key}, and behind all other keys that do. */
  static String justBefore(String key) {
    int last = key.codePointBefore(key.length());
    String head = key.substring(0, key.length() - Character.charCount(last));
    if (last == 0) {
      return head;
    }
    int before = last - 1;
    if (before >= Character.MIN_SURROGATE && before <= Character.MAX_SURROGATE) {
      before = Character.MIN_SURROGATE - 1;
    }
    return new StringBuilder(head).appendCodePoint(before).appendCodePoint(Character.MAX_CODE_POINT).toString();
  }
}
