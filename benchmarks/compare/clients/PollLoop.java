import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The Java client at its best: the topic is read once to warm the JVM up, then again against the clock. */
public class PollLoop {
    public static void main(String[] args) {
        String topic = args[1];
        long total = Long.parseLong(args[2]);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(args[3]); partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        List<String> words = List.of(args).subList(4, args.length);
        String isolation = words.contains("committed") ? "read_committed" : "read_uncommitted";
        Map<String, Object> options = Map.of("bootstrap.servers", args[0], "isolation.level", isolation);
        boolean headers = words.contains("headers");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.assign(partitions);
            read(consumer, total, headers);
            System.out.println(read(consumer, total, headers));
        }
    }

    /** Read the whole topic; the clock starts when the first records arrive, and those are not counted. */
    private static String read(KafkaConsumer<byte[], byte[]> consumer, long total, boolean headers) {
        consumer.seekToBeginning(consumer.assignment());
        long start = 0;
        long skipped = 0;
        long records = 0;
        long bytes = 0;
        long seen = 0;
        while (skipped + records < total) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
            if (start == 0) {
                skipped = polled.count();
                start = skipped == 0 ? 0 : System.nanoTime();
                continue;
            }
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                records++;
                bytes += record.value().length;
                seen += headers ? record.headers().toArray().length : 0;
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        String format = "{\"seconds\": %.6f, \"records\": %d, \"bytes\": %d, \"headers\": %d}";
        return String.format(format, seconds, records, bytes, seen);
    }
}
