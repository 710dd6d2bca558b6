import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The Java client as a member that comes and goes as it is told: see member.py, which does the same.
 *
 * Arguments: BROKER TOPIC GROUP, then KEY=VALUE for each option
 */
public class Member {
    private final BlockingQueue<Boolean> orders = new LinkedBlockingQueue<>();  // true: join or leave, false: end
    private final Map<String, Object> options = new HashMap<>();
    private final String topic;
    private final StringJoiner seen = new StringJoiner(", ", "{\"seen\": [", "]}");

    Member(String[] args) {
        topic = args[1];
        options.put("bootstrap.servers", args[0]);
        options.put("group.id", args[2]);
        options.put("auto.offset.reset", "latest");
        for (String option : List.of(args).subList(3, args.length)) {
            int equals = option.indexOf('=');
            options.put(option.substring(0, equals), option.substring(equals + 1));
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Member member = new Member(args);
        Thread listener = new Thread(member::listen);
        listener.setDaemon(true);
        listener.start();
        while (member.orders.take()) {
            member.read();
        }
        System.out.println(member.seen);
    }

    private void listen() {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            while (input.readLine() != null) {
                orders.add(true);
            }
        } catch (IOException error) {
            System.err.println(error);
        }
        orders.add(false);
        orders.add(false);  // one ends the membership, if there is one
    }

    /** Be a member until the next order. */
    private void read() {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            boolean silent = true;
            while (orders.poll() == null) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(50));
                long returned = System.nanoTime();
                if (silent && !polled.isEmpty()) {
                    System.out.println("reading");
                    silent = false;
                }
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    seen.add("[" + record.partition() + ", " + record.offset() + ", " + returned + "]");
                }
            }
        }
    }
}
