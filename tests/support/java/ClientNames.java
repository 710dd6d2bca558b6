// The options and methods of Kafka's own consumers: java ClientNames.java
//
// Prints one line per option of ConsumerConfig: "option", its name, and its default, or "required". Then one line per
// public method of KafkaConsumer and KafkaShareConsumer: the class and the name.

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;

public class ClientNames {
    public static void main(String[] args) {
        for (ConfigKey key : ConsumerConfig.configDef().configKeys().values()) {
            System.out.println("option\t" + key.name + "\t" + (key.hasDefault() ? key.defaultValue : "required"));
        }
        for (Class<?> client : List.of(KafkaConsumer.class, KafkaShareConsumer.class)) {
            TreeSet<String> names = new TreeSet<>();
            for (Method method : client.getDeclaredMethods()) {
                if (Modifier.isPublic(method.getModifiers())) {
                    names.add(method.getName());
                }
            }
            names.forEach(name -> System.out.println(client.getSimpleName() + "\t" + name));
        }
    }
}
