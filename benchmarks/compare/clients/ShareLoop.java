import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Java's share consumer at its best: one group reads the topic to warm the JVM up, then another against the clock. */
public class ShareLoop {
    public static void main(String[] args) {
        read(args[0], args[1], args[2], Long.parseLong(args[4]));
        System.out.println(read(args[0], args[1], args[3], Long.parseLong(args[4])));
    }

    /** Read the whole topic in implicit mode; the clock starts when the first records arrive, which are not counted. */
    private static String read(String servers, String topic, String group, long total) {
        Map<String, Object> options = Map.of("bootstrap.servers", servers, "group.id", group);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            long start = 0;
            long cpu = 0;
            long skipped = 0;
            long records = 0;
            long size = 0;
            while (skipped + records < total) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
                if (start == 0) {
                    skipped = polled.count();
                    start = skipped == 0 ? 0 : System.nanoTime();
                    cpu = cpuTime();
                    continue;
                }
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records++;
                    size += record.value().length;
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            double used = (cpuTime() - cpu) / 1e9;
            consumer.commitSync();
            String format = "{\"seconds\": %.6f, \"cpu\": %.6f, \"records\": %d, \"bytes\": %d}";
            return String.format(format, seconds, used, records, size);
        }
    }

    private static long cpuTime() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
