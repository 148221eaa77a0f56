package io.esker.spark;

import java.io.IOException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Tells the server now and then that a job's driver is alive, so that nobody takes it for dead. */
final class Heartbeat implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Heartbeat.class);

  /** Many fit into the shortest age at which anybody would take a job for dead. */
  private static final long EVERY_S = 60;

  private static final ScheduledExecutorService CLOCK =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "esker-heartbeat");
            thread.setDaemon(true);
            return thread;
          });

  private final ScheduledFuture<?> beats;

  Heartbeat(LakeJob job, Configuration conf) {
    this.beats =
        CLOCK.scheduleAtFixedRate(
            () -> {
              try {
                job.beat(conf);
              } catch (IOException error) {
                LOG.warn("job {} of {} could not give a sign of life: {}", job.id, job.repo, error.getMessage());
              }
            },
            EVERY_S,
            EVERY_S,
            TimeUnit.SECONDS);
  }

  @Override
  public void close() {
    beats.cancel(false);
  }
}
