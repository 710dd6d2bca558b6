import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Kafka's own assignors on cases read from standard input, one result for each; the other side is
 * tests/support/oracles/assignor_oracle.py. Words are separated by spaces, "-" stands for nothing:
 *
 *   topic NAME RACKS...          racks of each partition's replicas, comma-separated, in partition order
 *   member ID INSTANCE RACK GENERATION USERDATA(hex)
 *   topics ID TOPIC...           what the member subscribes to
 *   owns ID TOPIC:PARTITION...   what it says it owns
 *   assign ASSIGNOR RUNS         -> "given ID TOPIC:PARTITION..." lines, "ns TIME..." with the time of each
 *                                   run, or "failed CLASS MESSAGE"; then "end", and the case is forgotten
 *   userdata ASSIGNOR GENERATION TOPIC:PARTITION...  -> "bytes HEX" of the subscription after that assignment
 */
public final class AssignorOracle {
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Node> brokers = new HashMap<>();
    private final Map<String, String[]> members = new TreeMap<>();
    private final Map<String, List<String>> topics = new HashMap<>();
    private final Map<String, List<TopicPartition>> owned = new HashMap<>();

    public static void main(String[] args) throws Exception {
        AssignorOracle oracle = new AssignorOracle();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            StringBuilder output = new StringBuilder();
            oracle.handle(line.split(" "), output);
            if (output.length() > 0) {
                System.out.write(output.toString().getBytes(StandardCharsets.UTF_8));
                System.out.flush();
            }
        }
    }

    private void handle(String[] words, StringBuilder output) {
        switch (words[0]) {
            case "topic" -> addTopic(words);
            case "member" -> members.put(words[1], words);
            case "topics" -> topics.put(words[1], rest(words, 2));
            case "owns" -> owned.put(words[1], parse(rest(words, 2)));
            case "assign" -> {
                assign(words[1], Integer.parseInt(words[2]), output);
                output.append("end\n");
                forget();
            }
            case "userdata" -> userData(words, output);
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private void addTopic(String[] words) {
        for (int i = 2; i < words.length; i++) {
            Node[] replicas = words[i].equals("-") ? new Node[] {Node.noNode()}
                : Arrays.stream(words[i].split(",")).map(this::broker).toArray(Node[]::new);
            partitions.add(new PartitionInfo(words[1], i - 2, replicas[0], replicas, replicas));
        }
    }

    private Node broker(String rack) {
        return brokers.computeIfAbsent(rack, r -> new Node(brokers.size(), "localhost", 9092, r));
    }

    private void assign(String name, int runs, StringBuilder output) {
        Cluster cluster = new Cluster("oracle", brokers.values(), partitions, Set.of(), Set.of());
        Map<String, Assignment> given = Map.of();
        StringBuilder times = new StringBuilder("ns");
        try {
            for (int run = 0; run < runs; run++) {
                GroupSubscription group = new GroupSubscription(subscriptions());
                ConsumerPartitionAssignor assignor = assignor(name);
                long start = System.nanoTime();
                given = assignor.assign(cluster, group).groupAssignment();
                times.append(' ').append(System.nanoTime() - start);
            }
        } catch (RuntimeException error) {
            output.append("failed ").append(error.getClass().getSimpleName()).append(' ')
                .append(String.valueOf(error.getMessage()).replace('\n', ' ')).append('\n');
            return;
        }
        given.forEach((member, assignment) -> {
            output.append("given ").append(member);
            for (TopicPartition partition : assignment.partitions())
                output.append(' ').append(partition.topic()).append(':').append(partition.partition());
            output.append('\n');
        });
        output.append(times).append('\n');
    }

    private Map<String, Subscription> subscriptions() {
        Map<String, Subscription> result = new HashMap<>();
        members.forEach((id, words) -> {
            ByteBuffer userData = present(words[5]).map(AssignorOracle::bytes).orElse(null);
            Subscription subscription = new Subscription(topics.getOrDefault(id, List.of()), userData,
                owned.getOrDefault(id, List.of()), Integer.parseInt(words[4]), present(words[3]));
            subscription.setGroupInstanceId(present(words[2]));
            result.put(id, subscription);
        });
        return result;
    }

    @SuppressWarnings("removal") // the constructor goes in a later release; no other exists in this one
    private void userData(String[] words, StringBuilder output) {
        ConsumerPartitionAssignor assignor = assignor(words[1]);
        ConsumerGroupMetadata metadata = new ConsumerGroupMetadata("g", Integer.parseInt(words[2]), "m", Optional.empty());
        assignor.onAssignment(new Assignment(parse(rest(words, 3))), metadata);
        ByteBuffer data = assignor.subscriptionUserData(Collections.emptySet());
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        output.append("bytes ").append(HexFormat.of().formatHex(bytes)).append('\n');
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("unknown assignor " + name);
        };
    }

    private void forget() {
        partitions.clear();
        members.clear();
        topics.clear();
        owned.clear();
    }

    private static List<String> rest(String[] words, int from) {
        return Arrays.asList(words).subList(Math.min(from, words.length), words.length);
    }

    private static List<TopicPartition> parse(List<String> words) {
        List<TopicPartition> result = new ArrayList<>();
        for (String word : words) {
            int colon = word.lastIndexOf(':');
            result.add(new TopicPartition(word.substring(0, colon), Integer.parseInt(word.substring(colon + 1))));
        }
        return result;
    }

    private static Optional<String> present(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }
}
