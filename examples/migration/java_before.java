// Prints the orders of a topic until Ctrl-C, and commits each batch, with Java's consumer:
// java -cp kafka-clients.jar:slf4j-api.jar java_before.java HOST:PORT GROUP TOPIC

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

class Orders {
    public static void main(String[] args) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[1],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options);
        Thread reader = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                reader.join();
            } catch (InterruptedException ended) {
                throw new RuntimeException(ended);
            }
        }));
        try (consumer) {
            consumer.subscribe(List.of(args[2]), new Listener());
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<String, String> record : records) {
                    System.out.printf("%d %d %s %s %d%n", record.partition(), record.offset(), record.key(),
                        record.value(), record.timestamp());
                }
                if (!records.isEmpty()) {
                    consumer.commitSync(records.nextOffsets());
                }
            }
        } catch (WakeupException stopped) {
            System.out.println("stopped");
        }
    }

    static class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            TreeSet<Integer> numbers = new TreeSet<>();
            partitions.forEach(partition -> numbers.add(partition.partition()));
            System.out.println("reading " + numbers);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        }
    }
}
