import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The Java client with many partitions, each of which gets a record now and then: its CPU time, once it is warm. */
public class Steady {
    public static void main(String[] args) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(args[2]); partition++) {
            partitions.add(new TopicPartition(args[1], partition));
        }
        double seconds = Double.parseDouble(args[3]);
        Map<String, Object> options = Map.of("bootstrap.servers", args[0]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.assign(partitions);
            consumer.seekToEnd(partitions);
            poll(consumer, Double.parseDouble(args[4]));
            long cpu = cpuTime();
            long start = System.nanoTime();
            long records = poll(consumer, seconds);
            double took = (System.nanoTime() - start) / 1e9;
            double used = (cpuTime() - cpu) / 1e9;
            String format = "{\"seconds\": %.6f, \"records\": %d, \"cpu_seconds\": %.6f}";
            System.out.println(String.format(format, took, records, used));
        }
    }

    private static long poll(KafkaConsumer<byte[], byte[]> consumer, double seconds) {
        long records = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
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
