import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * How long records are on their way to the Java client: from their producer's call (see pulse.py) to the return of poll.
 *
 * Arguments: BROKER TOPIC GROUP RECORDS WARM_UP_SECONDS PROTOCOL
 */
public class Delay {
    public static void main(String[] args) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "latest",
            "group.protocol", args[5]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            long[] delays = new long[Integer.parseInt(args[3])];
            warmUp(consumer, Double.parseDouble(args[4]));
            long cpu = cpuTime();
            long start = System.nanoTime();
            read(consumer, delays);
            double took = (System.nanoTime() - start) / 1e9;
            double used = (cpuTime() - cpu) / 1e9;
            StringJoiner list = new StringJoiner(", ", "[", "]");
            for (long delay : delays) {
                list.add(Long.toString(delay));
            }
            System.out.println(String.format("{\"us\": %s, \"seconds\": %.6f, \"cpu_seconds\": %.6f}", list, took, used));
        }
    }

    private static void warmUp(KafkaConsumer<byte[], byte[]> consumer, double seconds) {
        while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) {
            continue;
        }
        long[] one = new long[1];
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            read(consumer, one);
        }
    }

    /** Fill the array with the delays of the next records, in microseconds. */
    private static void read(KafkaConsumer<byte[], byte[]> consumer, long[] delays) {
        int found = 0;
        while (found < delays.length) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
            long returned = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                if (found < delays.length) {
                    delays[found++] = (returned - ByteBuffer.wrap(record.value()).getLong()) / 1000;
                }
            }
        }
    }

    private static long cpuTime() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
