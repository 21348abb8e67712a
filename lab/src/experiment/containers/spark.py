"""A job of Apache Spark: it groups two million numbers, on one thread of this machine."""
from pyspark.sql import SparkSession

local = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
numbers = spark.range(2_000_000).selectExpr("id % 1000 as word", "id")
assert numbers.groupBy("word").sum("id").count() == 1000
spark.stop()
