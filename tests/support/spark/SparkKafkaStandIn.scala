// What Spark's own Kafka source calls of spark-token-provider-kafka-0-10, an artifact that Maven Central does not have
// for Spark 4.2.0: just enough for connections without authentication. Only tests and benchmarks that compare use it.
package org.apache.spark.kafka010

import java.util.{HashMap, Map => JavaMap}

import org.apache.spark.SparkConf
import org.apache.spark.internal.Logging

case class KafkaTokenClusterConf(identifier: String)

object KafkaTokenUtil extends Logging {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[KafkaTokenClusterConf] = None
  def needTokenUpdate(params: JavaMap[String, Object], cluster: Option[KafkaTokenClusterConf]): Boolean = false
  def isGlobalJaasConfigurationProvided: Boolean = false
}

object KafkaRedactionUtil extends Logging {
  def redactParams(params: Seq[(String, Object)]): Seq[(String, String)] =
    for ((key, value) <- params) yield key -> String.valueOf(value)
}

case class KafkaConfigUpdater(module: String, kafkaParams: Map[String, Object]) extends Logging {
  private val updated = new HashMap[String, Object]()
  for ((key, value) <- kafkaParams) updated.put(key, value)

  def set(key: String, value: Object): this.type = {
    updated.put(key, value)
    this
  }

  def setIfUnset(key: String, value: Object): this.type = {
    updated.putIfAbsent(key, value)
    this
  }

  def setAuthenticationConfigIfNeeded(): this.type = this
  def setAuthenticationConfigIfNeeded(cluster: Option[KafkaTokenClusterConf]): this.type = this
  def build(): JavaMap[String, Object] = updated
}
