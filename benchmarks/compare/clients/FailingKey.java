import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Processes a topic by Confluent's parallel-consumer. The handler fails for one key, always. Prints the seconds from its
 * first call until all other records are processed. Arguments: brokers, topic, group, order, workers, number of the
 * other records, key, milliseconds until a retry.
 */
public class FailingKey {
    public static void main(String[] args) throws Exception {
        int others = Integer.parseInt(args[5]);
        byte[] failing = args[6].getBytes();
        var consumer = new KafkaConsumer<byte[], byte[]>(Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName()));
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(consumer)
            .ordering(ProcessingOrder.valueOf(args[3].toUpperCase()))
            .maxConcurrency(Integer.parseInt(args[4]))
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
            .defaultMessageRetryDelay(Duration.ofMillis(Long.parseLong(args[7])))
            .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        var began = new AtomicLong();
        var processed = new AtomicInteger();
        var done = new CountDownLatch(1);
        processor.subscribe(List.of(args[1]));
        processor.poll(context -> {
            began.compareAndSet(0, System.nanoTime());
            if (Arrays.equals(failing, context.getSingleConsumerRecord().key())) {
                throw new IllegalStateException("always");
            }
            if (processed.incrementAndGet() == others) {
                done.countDown();
            }
        });
        done.await();
        System.out.println((System.nanoTime() - began.get()) / 1e9);
        System.exit(0);
    }
}
