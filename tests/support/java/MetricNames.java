// The metrics of Kafka's own consumer: java MetricNames.java BOOTSTRAP TOPIC GROUP PROTOCOL
//
// Joins the group, reads the topic until there was a record, commits, and polls once more. Then prints one line per
// metric: its group, its name, the keys of its tags, comma-separated and in order, its node-id or "-", and its value.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class MetricNames {
    public static void main(String[] args) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "group.protocol", args[3]);
        var bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no record came");
                }
            }
            consumer.commitSync();
            consumer.committed(consumer.assignment());
            consumer.poll(Duration.ofMillis(500));
            consumer.metrics().forEach((name, metric) -> System.out.println(String.join(" ",
                name.group(),
                name.name(),
                String.join(",", new TreeMap<>(name.tags()).keySet()),
                name.tags().getOrDefault("node-id", "-"),
                metric.metricValue().toString())));
        }
    }
}
