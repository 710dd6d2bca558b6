import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One record a second for each of many partitions, evenly over the second; a request carries those of one step.
 *
 * A partition whose last record is not acknowledged yet gets none, and a step that comes late is left out: what the
 * broker has no time for is dropped and counted, so no backlog grows. Every line of standard input is answered by what
 * was acknowledged and dropped since the line before; the first answer comes when each partition has a record. The end
 * of the input ends the program.
 *
 * Arguments: BROKER TOPIC PARTITIONS
 */
public class Trickle {
    private static final int STEPS = 20;
    private static final long STEP_NS = 1_000_000_000L / STEPS;

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private final AtomicIntegerArray acknowledged;
    private final AtomicIntegerArray underWay;
    private final CountDownLatch untouched;
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private volatile boolean ended;

    Trickle(KafkaProducer<byte[], byte[]> producer, String topic, int partitions) {
        this.producer = producer;
        this.topic = topic;
        this.partitions = partitions;
        this.acknowledged = new AtomicIntegerArray(partitions);
        this.underWay = new AtomicIntegerArray(partitions);
        this.untouched = new CountDownLatch(partitions);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "acks", "1",
            "enable.idempotence", false,
            "linger.ms", 10,  // until a step's records are together
            "batch.size", 512);  // of a partition: one record
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(options, bytes, bytes)) {
            Trickle trickle = new Trickle(producer, args[1], Integer.parseInt(args[2]));
            Thread sender = new Thread(trickle::send);
            sender.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            while (input.readLine() != null) {
                trickle.untouched.await();
                System.out.println(trickle.sent.getAndSet(0) + " " + trickle.dropped.getAndSet(0));
            }
            trickle.ended = true;
            sender.join();
        }
    }

    private void send() {
        long start = System.nanoTime();
        for (long step = 0; !ended; step++) {
            long early = start + step * STEP_NS - System.nanoTime();
            sleep(early);
            for (int partition = (int) (step % STEPS); partition < partitions; partition += STEPS) {
                if (early < -STEP_NS || !underWay.compareAndSet(partition, 0, 1)) {
                    dropped.incrementAndGet();
                } else {
                    send(partition);
                }
            }
        }
    }

    private void send(int partition) {
        producer.send(new ProducerRecord<>(topic, partition, null, new byte[100]), (metadata, error) -> {
            (error == null ? sent : dropped).incrementAndGet();
            if (error == null && acknowledged.getAndSet(partition, 1) == 0) {
                untouched.countDown();
            }
            underWay.set(partition, 0);
        });
    }

    private static void sleep(long nanos) {
        try {
            Thread.sleep(Math.max(0, nanos / 1_000_000));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
