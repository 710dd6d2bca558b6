import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The CPU time of the Java client while records arrive, as the only member of a new group.
 *
 * Arguments: BROKER TOPIC GROUP SECONDS WARM_UP_SECONDS PROTOCOL
 */
public class Rate {
    private static final long FIRST_RECORD_NS = 30_000_000_000L;

    public static void main(String[] args) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "latest",
            "group.protocol", args[5]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            long deadline = System.nanoTime() + FIRST_RECORD_NS;
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no record has arrived");
                }
            }
            read(consumer, Double.parseDouble(args[4]));
            long cpu = cpuTime();
            long start = System.nanoTime();
            long records = read(consumer, Double.parseDouble(args[3]));
            double took = (System.nanoTime() - start) / 1e9;
            double used = (cpuTime() - cpu) / 1e9;
            String format = "{\"seconds\": %.6f, \"records\": %d, \"cpu_seconds\": %.6f}";
            System.out.println(String.format(format, took, records, used));
        }
    }

    private static long read(KafkaConsumer<byte[], byte[]> consumer, double seconds) {
        long records = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                records += record.value().length > 0 ? 1 : 0;
            }
        }
        return records;
    }

    private static long cpuTime() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
